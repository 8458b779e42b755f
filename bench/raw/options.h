/* The command line of the load generator; every number is checked against its range. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mode { SEND, PULL, FLOW };
enum peer { REDIS, NATS }; /* of peers.c */

static struct {
    const char *host, *topic, *group, *broker, *subscription, *offsets, *account, *secret;
    enum mode mode;
    enum peer peer;
    int port, connections, window, batch, body, queues, topics, core, max_messages, groups, tags;
    bool binary;
    long long count;
    double seconds, warmup, rate;
} opt = {
    .host = "127.0.0.1", .topic = "bench", .group = "bench_raw", .broker = "broker-a",
    .subscription = "*", .groups = 1, .port = 10911, .connections = 1, .window = 1, .batch = 1, .body = 128, .queues = 8,
    .topics = 1, .core = -1, .max_messages = 32,
};

static double number(const char *name, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || !(value >= low && value <= high)) {
        fprintf(stderr, "load: --%s must be a number from %g to %g, not '%s'\n", name, low, high, text);
        exit(1);
    }
    return value;
}

static int choice(const char *name, const char *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    fprintf(stderr, "load: --%s cannot be '%s'\n", name, text);
    exit(1);
}

static const char *const mode_names[] = {"send", "pull", "flow"};
static const char *const peer_names[] = {"redis", "nats"};

static const char usage[] =
    "load: sends to a RocketMQ broker, pulls from it, or both, with prebuilt frames; prints one JSON line\n"
    "  --host IP --port N --broker-name NAME    the broker (127.0.0.1, 10911, broker-a)\n"
    "  --mode send|pull|flow                    what to do (send); flow: send, and groups wait for what is sent\n"
    "  --topic NAME --queues N --topics N       spread round robin; with --topics the names are NAME-0, NAME-1, ...\n"
    "  --group NAME                             producer or consumer group (bench_raw)\n"
    "  --connections N --window N               sends in flight = connections x window (1 x 1)\n"
    "  --batch N --body BYTES --binary          messages per send (1), body (128), binary headers instead of JSON\n"
    "  --max-messages N                         per pull (32); without --seconds every queue is read once\n"
    "  --subscription TAG                       pulls select this tag; rate counts what was passed (*)\n"
    "  --tags N                                 sends have the tags t000, t001, ... in turn (none)\n"
    "  --groups N --offsets A,B,...             flow: reading groups (1), and where each queue ends now\n"
    "  --count N | --seconds S --warmup S       how long; what is answered during the warm-up is not measured\n"
    "  --account NAME --secret TEXT             sends are signed ahead of time, a few thousand that go round\n"
    "  --rate N                                 open load: N messages per second at even distances\n"
    "  --core N                                 pin to a core\n";

static const struct option long_options[] = {
    {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"mode", 1, 0, 'm'}, {"topic", 1, 0, 't'}, {"group", 1, 0, 'g'},
    {"broker-name", 1, 0, 'n'}, {"connections", 1, 0, 'c'}, {"window", 1, 0, 'w'}, {"batch", 1, 0, 'k'},
    {"body", 1, 0, 'b'}, {"queues", 1, 0, 'q'}, {"topics", 1, 0, 'T'}, {"count", 1, 0, 'N'},
    {"seconds", 1, 0, 's'}, {"warmup", 1, 0, 'u'}, {"rate", 1, 0, 'r'}, {"core", 1, 0, 'C'},
    {"max-messages", 1, 0, 'x'}, {"binary", 0, 0, 'B'}, {"subscription", 1, 0, 'S'}, {"tags", 1, 0, 'A'},
    {"groups", 1, 0, 'G'}, {"offsets", 1, 0, 'o'}, {"peer", 1, 0, 'P'},
    {"account", 1, 0, 'U'}, {"secret", 1, 0, 'K'},
    {"help", 0, 0, 'H'}, {0, 0, 0, 0},
};

static void take_option(int letter, const char *name, const char *text) {
    switch (letter) {
    case 'h': opt.host = text; break;
    case 't': opt.topic = text; break;
    case 'g': opt.group = text; break;
    case 'n': opt.broker = text; break;
    case 'S': opt.subscription = text; break;
    case 'o': opt.offsets = text; break;
    case 'U': opt.account = text; break;
    case 'K': opt.secret = text; break;
    case 'm': opt.mode = (enum mode)choice(name, text, mode_names, 3); break;
    case 'P': opt.peer = (enum peer)choice(name, text, peer_names, 2); break;
    case 'B': opt.binary = true; break;
    case 'H': fputs(usage, stdout); exit(0);
    case 'p': opt.port = (int)number(name, text, 1, 65535); break;
    case 'c': opt.connections = (int)number(name, text, 1, 20000); break;
    case 'w': opt.window = (int)number(name, text, 1, 10000); break;
    case 'k': opt.batch = (int)number(name, text, 1, 10000); break;
    case 'b': opt.body = (int)number(name, text, 1, 4 << 20); break;
    case 'q': opt.queues = (int)number(name, text, 1, 10000); break;
    case 'T': opt.topics = (int)number(name, text, 1, 100000); break;
    case 'x': opt.max_messages = (int)number(name, text, 1, 1024); break;
    case 'A': opt.tags = (int)number(name, text, 1, 1000); break;
    case 'G': opt.groups = (int)number(name, text, 1, 1000); break;
    case 'N': opt.count = (long long)number(name, text, 1, 1e12); break;
    case 's': opt.seconds = number(name, text, 0.01, 86400); break;
    case 'u': opt.warmup = number(name, text, 0, 86400); break;
    case 'r': opt.rate = number(name, text, 1, 1e8); break;
    case 'C': opt.core = (int)number(name, text, 0, 1023); break;
    default: exit(1); /* getopt has said what is wrong */
    }
}

static void read_options(int argc, char **argv) {
    int letter, index = 0;
    while ((letter = getopt_long(argc, argv, "", long_options, &index)) != -1)
        take_option(letter, letter == '?' ? "" : long_options[index].name, optarg);
    const char *wrong = NULL;
    if (optind < argc)
        wrong = "nothing but options is understood";
    else if (opt.mode != PULL && opt.seconds == 0 && opt.count == 0)
        wrong = "give --count or --seconds when sending";
    else if (opt.mode != SEND && opt.topics > 1)
        wrong = "pulls read one topic; run several for several topics";
    else if (opt.mode == FLOW && (opt.rate == 0 || opt.batch > 1 || opt.body < 16 || strcmp(opt.subscription, "*") != 0))
        wrong = "flow needs --rate, single messages of at least 16 bytes, and no filter";
    else if ((opt.account == NULL) != (opt.secret == NULL) || (opt.secret != NULL && strlen(opt.secret) > 64))
        wrong = "--account needs a --secret of at most 64 characters, and the other way round";
    else if (opt.account != NULL && opt.mode != SEND)
        wrong = "only sends are signed";
    else if (strlen(opt.subscription) > 64)
        wrong = "--subscription is one tag of at most 64 characters";
    if (wrong != NULL) {
        fprintf(stderr, "load: %s\n", wrong);
        exit(1);
    }
}

#endif
