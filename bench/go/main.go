// A load of plain gRPC calls on one connection, without the work of a client library. Prints one JSON line.
//
//	load -mode send -in-flight 64 -seconds 5 ...     sends, each in a call of its own
//	load -mode receive -in-flight 4 -count 10000 ... receives of 32 messages, each acknowledged in one call
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var (
	mode     = flag.String("mode", "send", "send or receive")
	address  = flag.String("address", "", "host:port of the front")
	topic    = flag.String("topic", "", "topic")
	group    = flag.String("group", "", "group of a receive")
	inFlight = flag.Int("in-flight", 1, "calls at the same time")
	seconds  = flag.Float64("seconds", 5, "length of a send")
	warmup   = flag.Float64("warmup", 0.5, "seconds before it that do not count")
	count    = flag.Int64("count", 10000, "how many messages a receive takes")
	body     = flag.Int("body", 128, "bytes of a message")
)

const batch = 32

type result struct {
	Messages   int64   `json:"messages"`
	Seconds    float64 `json:"seconds"`
	Rate       float64 `json:"rate"`
	P50Us      float64 `json:"p50_us"`
	P99Us      float64 `json:"p99_us"`
	Errors     int64   `json:"errors"`
	FirstError string  `json:"first_error"`
}

// What all workers did; each keeps its own list of times.
type tally struct {
	messages, errors atomic.Int64
	once             sync.Once
	first            string
}

func (t *tally) fail(what string) {
	t.errors.Add(1)
	t.once.Do(func() { t.first = what })
}

func with(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx,
		"x-mq-client-id", fmt.Sprintf("load@%d", os.Getpid()), "x-mq-language", "GO", "x-mq-protocol", "v2",
		"x-mq-client-version", "5.1.4", "x-mq-request-id", "load", "x-mq-date-time", "20260101T000000Z",
		"x-mq-namespace", "")
}

var sequence atomic.Int64

func message() *v2.Message {
	now := time.Now()
	id := fmt.Sprintf("01%012X%08X%012X", os.Getpid(), now.Unix()&0xffffffff, sequence.Add(1))
	return &v2.Message{
		Topic: &v2.Resource{Name: *topic},
		Body:  payload,
		SystemProperties: &v2.SystemProperties{
			MessageId: id, MessageType: v2.MessageType_NORMAL, BodyEncoding: v2.Encoding_IDENTITY,
			BornHost: "127.0.0.1", BornTimestamp: timestamppb.New(now),
		},
	}
}

var payload []byte

func send(client v2.MessagingServiceClient, t *tally, until time.Time, from time.Time) []float64 {
	times := make([]float64, 0, 1<<16)
	for {
		began := time.Now()
		if began.After(until) {
			return times
		}
		ctx, cancel := context.WithTimeout(with(context.Background()), 30*time.Second)
		answer, err := client.SendMessage(ctx, &v2.SendMessageRequest{Messages: []*v2.Message{message()}})
		cancel()
		switch {
		case err != nil:
			t.fail(err.Error())
			return times
		case answer.GetStatus().GetCode() != v2.Code_OK:
			t.fail(answer.GetStatus().String())
			return times
		case began.After(from):
			t.messages.Add(1)
			times = append(times, float64(time.Since(began).Microseconds()))
		}
	}
}

// Receives until all messages have come, and then ends what others still wait for.
func receive(ctx context.Context, finish func(), client v2.MessagingServiceClient, t *tally) []float64 {
	times := []float64{}
	defer finish()
	for t.messages.Load() < *count && t.errors.Load() == 0 {
		began := time.Now()
		entries, err := receiveOnce(ctx, client)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			t.fail(err.Error())
			break
		}
		if len(entries) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(with(context.Background()), 30*time.Second)
		answer, err := client.AckMessage(ctx, &v2.AckMessageRequest{
			Group: &v2.Resource{Name: *group}, Topic: &v2.Resource{Name: *topic}, Entries: entries})
		cancel()
		if err != nil {
			t.fail(err.Error())
			break
		}
		if answer.GetStatus().GetCode() != v2.Code_OK {
			t.fail(answer.GetStatus().String())
			break
		}
		t.messages.Add(int64(len(entries)))
		times = append(times, float64(time.Since(began).Microseconds()))
	}
	return times
}

func receiveOnce(until context.Context, client v2.MessagingServiceClient) ([]*v2.AckMessageEntry, error) {
	ctx, cancel := context.WithTimeout(with(until), 30*time.Second)
	defer cancel()
	stream, err := client.ReceiveMessage(ctx, &v2.ReceiveMessageRequest{
		Group:             &v2.Resource{Name: *group},
		MessageQueue:      &v2.MessageQueue{Topic: &v2.Resource{Name: *topic}, Broker: &v2.Broker{Name: "broker-a"}},
		FilterExpression:  &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
		BatchSize:         batch,
		InvisibleDuration: durationpb.New(60 * time.Second),
	})
	if err != nil {
		return nil, err
	}
	entries := make([]*v2.AckMessageEntry, 0, batch)
	for {
		answer, err := stream.Recv()
		if err != nil {
			if err.Error() == "EOF" {
				return entries, nil
			}
			return nil, err
		}
		if got := answer.GetMessage(); got != nil {
			system := got.GetSystemProperties()
			entries = append(entries, &v2.AckMessageEntry{
				MessageId: system.GetMessageId(), ReceiptHandle: system.GetReceiptHandle()})
		} else if status := answer.GetStatus(); status != nil &&
			status.GetCode() != v2.Code_OK && status.GetCode() != v2.Code_MESSAGE_NOT_FOUND {
			return nil, fmt.Errorf("%s", status)
		}
	}
}

// Apache's proxy receives only for clients that have told their settings.
func introduce(client v2.MessagingServiceClient) (v2.MessagingService_TelemetryClient, error) {
	stream, err := client.Telemetry(with(context.Background()))
	if err != nil {
		return nil, err
	}
	settings := &v2.Settings{
		ClientType:     v2.ClientType_SIMPLE_CONSUMER.Enum(),
		RequestTimeout: durationpb.New(3 * time.Second),
		UserAgent:      &v2.UA{Language: v2.Language_GOLANG, Version: "5.1.4"},
		PubSub: &v2.Settings_Subscription{Subscription: &v2.Subscription{
			Group: &v2.Resource{Name: *group},
			Subscriptions: []*v2.SubscriptionEntry{{
				Topic: &v2.Resource{Name: *topic}, Expression: &v2.FilterExpression{Expression: "*"}}},
		}},
	}
	command := &v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}
	if err := stream.Send(command); err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

func run() (*result, error) {
	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	client := v2.NewMessagingServiceClient(connection)
	if *mode == "receive" {
		if _, err := introduce(client); err != nil {
			return nil, err
		}
	}
	t := &tally{}
	began := time.Now()
	from := began.Add(time.Duration(*warmup * float64(time.Second)))
	until := from.Add(time.Duration(*seconds * float64(time.Second)))
	all := make([][]float64, *inFlight)
	receiving, cancel := context.WithCancel(context.Background())
	defer cancel()
	elapsed := *seconds
	finish := sync.OnceFunc(func() {
		elapsed = time.Since(began).Seconds()
		cancel()
	})
	var workers sync.WaitGroup
	for number := range *inFlight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			if *mode == "receive" {
				all[number] = receive(receiving, finish, client, t)
			} else {
				all[number] = send(client, t, until, from)
			}
		}()
	}
	workers.Wait()
	times := []float64{}
	for _, part := range all {
		times = append(times, part...)
	}
	sort.Float64s(times)
	at := func(share float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return times[int(share*float64(len(times)-1))]
	}
	messages := t.messages.Load()
	return &result{
		messages, elapsed, float64(messages) / elapsed, at(0.5), at(0.99), t.errors.Load(), t.first,
	}, nil
}

func main() {
	flag.Parse()
	payload = make([]byte, *body)
	for index := range payload {
		payload[index] = byte('a' + index%26)
	}
	found, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, _ := json.Marshal(found)
	fmt.Println(string(text))
}
