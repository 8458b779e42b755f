// Apache's Go client, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per line out,
// {"result": ...} or {"error": text}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const noNewMessage = "MESSAGE_NOT_FOUND"

type arguments struct {
	Name       string            `json:"name"`
	Endpoint   string            `json:"endpoint"`
	AccessKey  string            `json:"access_key"`
	SecretKey  string            `json:"secret_key"`
	Topics     []string          `json:"topics"`
	Check      string            `json:"check"`
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      string            `json:"group"`
	DeliverMs  int64             `json:"deliver_ms"`
	Outcome    string            `json:"outcome"`
	Handle     string            `json:"handle"`
	Expression string            `json:"expression"`
	Count      int32             `json:"count"`
	InvisibleS int64             `json:"invisible_s"`
	ID         string            `json:"id"`
	FailFirst  int               `json:"fail_first"`
}

type shown struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      *string           `json:"group"`
	Attempt    int32             `json:"attempt"`
}

func show(view *rocketmq.MessageView) shown {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return shown{
		view.GetMessageId(), view.GetTopic(), string(view.GetBody()), view.GetTag(), keys, view.GetProperties(),
		view.GetMessageGroup(), view.GetDeliveryAttempt(),
	}
}

type stoppable interface {
	Start() error
	GracefulStop() error
}

// What listeners and checkers were given; they are called from other goroutines.
type watcher struct {
	lock  sync.Mutex
	seen  []any
	times map[string]int
}

func (w *watcher) note(id string, what any) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.seen = append(w.seen, what)
	w.times[id]++
	return w.times[id]
}

type driver struct {
	clients  map[string]stoppable
	watchers map[string]*watcher
	held     map[string]*rocketmq.MessageView
}

func configuration(a *arguments) *rocketmq.Config {
	keys := &credentials.SessionCredentials{AccessKey: a.AccessKey, AccessSecret: a.SecretKey}
	return &rocketmq.Config{Endpoint: a.Endpoint, ConsumerGroup: a.Group, Credentials: keys}
}

func messageOf(a *arguments) *rocketmq.Message {
	message := &rocketmq.Message{Topic: a.Topic, Body: []byte(a.Body)}
	if a.Tag != "" {
		message.SetTag(a.Tag)
	}
	if len(a.Keys) > 0 {
		message.SetKeys(a.Keys...)
	}
	for key, value := range a.Properties {
		message.AddProperty(key, value)
	}
	if a.Group != "" {
		message.SetMessageGroup(a.Group)
	}
	if a.DeliverMs != 0 {
		message.SetDelayTimestamp(time.UnixMilli(a.DeliverMs))
	}
	return message
}

func (d *driver) start(name string, client stoppable, err error) error {
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	d.clients[name] = client
	return nil
}

func (d *driver) watch(name string) *watcher {
	d.watchers[name] = &watcher{times: map[string]int{}}
	return d.watchers[name]
}

func (d *driver) startProducer(a *arguments) (any, error) {
	seen := d.watch(a.Name)
	outcomes := map[string]rocketmq.TransactionResolution{"COMMIT": rocketmq.COMMIT, "ROLLBACK": rocketmq.ROLLBACK}
	check := func(view *rocketmq.MessageView) rocketmq.TransactionResolution {
		seen.note(view.GetMessageId(), view.GetMessageId())
		return outcomes[a.Check] // otherwise 0, which is unknown
	}
	checker := &rocketmq.TransactionChecker{Check: check}
	producer, err := rocketmq.NewProducer(
		configuration(a), rocketmq.WithTopics(a.Topics...), rocketmq.WithTransactionChecker(checker))
	return nil, d.start(a.Name, producer, err)
}

func (d *driver) send(a *arguments) (any, error) {
	receipts, err := d.clients[a.Name].(rocketmq.Producer).Send(context.Background(), messageOf(a))
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": receipts[0].MessageID, "recall_handle": receipts[0].RecallHandle}, nil
}

func (d *driver) sendInTransaction(a *arguments) (any, error) {
	producer := d.clients[a.Name].(rocketmq.Producer)
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), messageOf(a), transaction)
	if err != nil {
		return nil, err
	}
	switch a.Outcome {
	case "COMMIT":
		err = transaction.Commit()
	case "ROLLBACK":
		err = transaction.RollBack()
	}
	return map[string]any{"id": receipts[0].MessageID}, err
}

func (d *driver) recall(a *arguments) (any, error) {
	return d.clients[a.Name].(rocketmq.Producer).Recall(context.Background(), a.Topic, a.Handle)
}

func subscription(a *arguments) map[string]*rocketmq.FilterExpression {
	expression := rocketmq.SUB_ALL
	if a.Expression != "" {
		expression = rocketmq.NewFilterExpression(a.Expression)
	}
	return map[string]*rocketmq.FilterExpression{a.Topic: expression}
}

func (d *driver) startSimple(a *arguments) (any, error) {
	consumer, err := rocketmq.NewSimpleConsumer(configuration(a),
		rocketmq.WithSimpleAwaitDuration(5*time.Second), rocketmq.WithSimpleSubscriptionExpressions(subscription(a)))
	return nil, d.start(a.Name, consumer, err)
}

func (d *driver) receive(a *arguments) (any, error) {
	found := []shown{}
	views, err := d.clients[a.Name].(rocketmq.SimpleConsumer).Receive(
		context.Background(), a.Count, time.Duration(a.InvisibleS)*time.Second)
	var status *rocketmq.ErrRpcStatus
	if errors.As(err, &status) && strings.Contains(err.Error(), noNewMessage) {
		return found, nil // this client calls it an error
	}
	for _, view := range views {
		d.held[view.GetMessageId()] = view
		found = append(found, show(view))
	}
	return found, err
}

func (d *driver) ack(a *arguments) (any, error) {
	return nil, d.clients[a.Name].(rocketmq.SimpleConsumer).Ack(context.Background(), d.held[a.ID])
}

func (d *driver) change(a *arguments) (any, error) {
	consumer := d.clients[a.Name].(rocketmq.SimpleConsumer)
	return nil, consumer.ChangeInvisibleDuration(d.held[a.ID], time.Duration(a.InvisibleS)*time.Second)
}

func (d *driver) startPush(a *arguments) (any, error) {
	seen := d.watch(a.Name)
	consume := func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
		if seen.note(view.GetMessageId(), show(view)) <= a.FailFirst {
			return rocketmq.FAILURE
		}
		return rocketmq.SUCCESS
	}
	consumer, err := rocketmq.NewPushConsumer(configuration(a),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(subscription(a)),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: consume}))
	return nil, d.start(a.Name, consumer, err)
}

func (d *driver) seen(a *arguments) (any, error) {
	watcher := d.watchers[a.Name]
	watcher.lock.Lock()
	defer watcher.lock.Unlock()
	return append([]any{}, watcher.seen...), nil
}

func (d *driver) stop(a *arguments) (any, error) {
	client := d.clients[a.Name]
	delete(d.clients, a.Name)
	return nil, client.GracefulStop()
}

func (d *driver) run(command string, a *arguments) (result any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	commands := map[string]func(*arguments) (any, error){
		"ping":           func(*arguments) (any, error) { return "pong", nil },
		"start_producer": d.startProducer, "send": d.send, "send_in_transaction": d.sendInTransaction,
		"recall": d.recall, "start_simple": d.startSimple, "receive": d.receive, "ack": d.ack, "change": d.change,
		"start_push": d.startPush, "seen": d.seen, "stop": d.stop,
	}
	return commands[command](a)
}

func main() {
	wire := os.Stdout
	os.Stdout = os.Stderr // whatever else prints goes to standard error
	d := &driver{map[string]stoppable{}, map[string]*watcher{}, map[string]*rocketmq.MessageView{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var request struct {
			Command   string    `json:"cmd"`
			Arguments arguments `json:"args"`
		}
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			panic(err)
		}
		if request.Command == "quit" {
			break
		}
		reply := map[string]any{}
		if result, err := d.run(request.Command, &request.Arguments); err != nil {
			reply["error"] = err.Error()
		} else {
			reply["result"] = result
		}
		text, _ := json.Marshal(reply)
		fmt.Fprintf(wire, "%s\n", text)
	}
	fmt.Fprintln(wire, `{"result": null}`)
}
