/* Clients that take messages and acknowledge them until a backlog is done: a thread and a blocking connection each.
 *
 * Shared by pop.c (RocketMQ's pop mode) and streams.c (redis streams), so that both are measured by the same clock: a
 * program gives `work_once`, which takes some messages, acknowledges them and returns how many; everything else is here.
 * Every message must come exactly once; `seen_now` tells of one that came before. */
#ifndef WORKERS_H
#define WORKERS_H

#include "histogram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 256
#define EMPTY_PAUSE_US 1000

static struct {
    const char *host, *topic, *group, *broker;
    int port, clients, take, queues, core, invisible_ms;
    long long count;
    bool batch;
    double limit;
} opt = {
    .host = "127.0.0.1", .topic = "bench", .group = "bench_pop", .broker = "broker-a", .port = 10911, .clients = 4,
    .take = 32, .queues = 8, .core = -1, .invisible_ms = 60000, .count = 100000, .limit = 120,
};

struct client {
    int fd, number;
    uint8_t *in, *out;
    size_t in_at, in_size, in_room, out_size, out_room;
    struct histogram takes, acks; /* how long a taking request and the acknowledgements of its messages lasted */
};

static struct client clients[CLIENTS_MAX];
static atomic_llong done_count, empty_count;
static atomic_uchar *seen;
static int64_t started, measure_from, ended;
static long long skipped;

static int work_once(struct client *c); /* what was taken and acknowledged, 0 when there was nothing */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what, const char *detail, size_t size) {
    fprintf(stderr, "%s (%s:%d) %.*s\n", what, opt.host, opt.port, (int)(size < 200 ? size : 200), detail);
    exit(1);
}

static void *grown(void *memory, size_t bytes) {
    memory = realloc(memory, bytes);
    if (memory == NULL)
        die("out of memory", "", 0);
    return memory;
}

static void seen_now(long long number) {
    if (number < 0 || number >= opt.count * opt.queues)
        die("a message that is not of the backlog", "", 0);
    if (atomic_exchange(&seen[number], 1))
        die("a message came twice", "", 0);
}

/* Makes room at the end of what will be sent next. */
static uint8_t *out_room(struct client *c, size_t bytes) {
    if (c->out_size + bytes > c->out_room)
        c->out = grown(c->out, c->out_room = 2 * (c->out_size + bytes));
    c->out_size += bytes;
    return c->out + c->out_size - bytes;
}

static void send_out(struct client *c) {
    for (size_t at = 0; at < c->out_size;) {
        ssize_t n = write(c->fd, c->out + at, c->out_size - at);
        if (n < 0 && errno != EINTR)
            die("cannot send:", strerror(errno), 100);
        at += n > 0 ? (size_t)n : 0;
    }
    c->out_size = 0;
}

/* Has at least `bytes` unread bytes in the buffer and returns where they are. */
static uint8_t *need(struct client *c, size_t bytes) {
    if (c->in_at + bytes > c->in_room) {
        memmove(c->in, c->in + c->in_at, c->in_size - c->in_at);
        c->in_size -= c->in_at;
        c->in_at = 0;
        if (bytes > c->in_room)
            c->in = grown(c->in, c->in_room = 2 * bytes + 65536);
    }
    while (c->in_size - c->in_at < bytes) {
        ssize_t n = read(c->fd, c->in + c->in_size, c->in_room - c->in_size);
        if (n == 0 || (n < 0 && errno != EINTR))
            die("no answer:", n == 0 ? "closed by the server" : strerror(errno), 100);
        c->in_size += n > 0 ? (size_t)n : 0;
    }
    return c->in + c->in_at;
}

static void take_in(struct client *c, size_t bytes) {
    c->in_at += bytes;
    if (c->in_at == c->in_size)
        c->in_at = c->in_size = 0;
}

static void connect_client(struct client *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    struct timeval patience = {.tv_sec = 20};
    int yes = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1 || c->fd < 0 ||
        connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("cannot connect:", strerror(errno), 100);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    c->in = grown(NULL, c->in_room = 1 << 18);
    c->out = grown(NULL, c->out_room = 1 << 16);
}

static void *run_client(void *argument) {
    struct client *c = argument;
    while (atomic_load(&done_count) < opt.count) {
        int found = work_once(c);
        if (found == 0) {
            atomic_fetch_add(&empty_count, 1);
            usleep(EMPTY_PAUSE_US);
        }
        int64_t now = now_ns();
        long long before = atomic_fetch_add(&done_count, found);
        if (found && before < skipped && before + found >= skipped)
            measure_from = now;
        if (found && before + found == opt.count)
            ended = now;
        if ((double)(now - started) > opt.limit * 1e9)
            die("not done within the limit", "", 0);
    }
    return NULL;
}

static const struct option long_options[] = {
    {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"topic", 1, 0, 't'}, {"group", 1, 0, 'g'}, {"broker-name", 1, 0, 'n'},
    {"clients", 1, 0, 'c'}, {"take", 1, 0, 'k'}, {"queues", 1, 0, 'q'}, {"core", 1, 0, 'C'}, {"count", 1, 0, 'N'},
    {"invisible", 1, 0, 'i'}, {"limit", 1, 0, 'l'}, {"batch", 0, 0, 'b'}, {0, 0, 0, 0},
};

static long long whole(const char *text, long long low, long long high) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == 0 || *end != 0 || value < low || value > high)
        die("not a number in its range:", text, 40);
    return value;
}

static void read_options(int argc, char **argv) {
    int letter;
    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (letter) {
        case 'h': opt.host = optarg; break;
        case 't': opt.topic = optarg; break;
        case 'g': opt.group = optarg; break;
        case 'n': opt.broker = optarg; break;
        case 'b': opt.batch = true; break;
        case 'p': opt.port = (int)whole(optarg, 1, 65535); break;
        case 'c': opt.clients = (int)whole(optarg, 1, CLIENTS_MAX); break;
        case 'k': opt.take = (int)whole(optarg, 1, 32); break;
        case 'q': opt.queues = (int)whole(optarg, 1, 1024); break;
        case 'C': opt.core = (int)whole(optarg, 0, 1023); break;
        case 'N': opt.count = whole(optarg, 1, 100000000); break;
        case 'i': opt.invisible_ms = (int)whole(optarg, 1, 3600000); break;
        case 'l': opt.limit = (double)whole(optarg, 1, 3600); break;
        default: exit(1); /* getopt has said what is wrong */
        }
    }
}

static void report(const char *what) {
    struct rusage used;
    struct histogram *takes = &clients[0].takes, *acks = &clients[0].acks;
    getrusage(RUSAGE_SELF, &used);
    for (int i = 1; i < opt.clients; i++) {
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            takes->buckets[bucket] += clients[i].takes.buckets[bucket];
            acks->buckets[bucket] += clients[i].acks.buckets[bucket];
        }
        takes->count += clients[i].takes.count, acks->count += clients[i].acks.count;
        takes->max = takes->max > clients[i].takes.max ? takes->max : clients[i].takes.max;
        acks->max = acks->max > clients[i].acks.max ? acks->max : clients[i].acks.max;
    }
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"mode\":\"%s\",\"clients\":%d,\"messages\":%lld,\"rate\":%.1f,\"seconds\":%.3f,\"empty\":%lld,"
           "\"take_p50_us\":%.1f,\"take_p99_us\":%.1f,\"ack_p50_us\":%.1f,\"ack_p99_us\":%.1f,\"load_cpu_s\":%.3f}\n",
           what, opt.clients, atomic_load(&done_count),
           (double)(opt.count - skipped) / ((double)(ended - measure_from) / 1e9), (double)(ended - started) / 1e9,
           atomic_load(&empty_count), (double)histogram_at(takes, 0.5) / 1e3, (double)histogram_at(takes, 0.99) / 1e3,
           (double)histogram_at(acks, 0.5) / 1e3, (double)histogram_at(acks, 0.99) / 1e3, cpu);
}

static int run_workers(int argc, char **argv, const char *what) {
    pthread_t threads[CLIENTS_MAX];
    read_options(argc, argv);
    if (opt.core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(opt.core, &set);
        if (sched_setaffinity(0, sizeof set, &set) < 0)
            die("cannot pin to --core:", strerror(errno), 100);
    }
    seen = calloc((size_t)(opt.count * opt.queues), 1);
    skipped = opt.count / 10 + 1; /* the first tenth is warm-up */
    if (seen == NULL)
        die("out of memory", "", 0);
    for (int i = 0; i < opt.clients; i++) {
        clients[i].number = i;
        connect_client(&clients[i]);
    }
    started = now_ns();
    for (int i = 0; i < opt.clients; i++)
        if (pthread_create(&threads[i], NULL, run_client, &clients[i]) != 0)
            die("cannot start a thread", "", 0);
    for (int i = 0; i < opt.clients; i++)
        pthread_join(threads[i], NULL);
    if (atomic_load(&done_count) != opt.count)
        die("more messages than the backlog has", "", 0);
    report(what);
    return 0;
}

#endif
