/* Many connections in one thread: non-blocking sockets, one epoll set, a buffer each way.
 *
 * The program gives `frames_in`, which takes whole frames off a connection's buffer, and `lost`, which is told of a
 * connection that broke. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include "options.h"

#ifdef WITH_TLS
#include <openssl/ssl.h>
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What is read at once. Requests that it brings forth leave before more is read: with all answers in one read server and load
 * would take turns, one of them idle at any time, and what is measured would be the sum of both. */
#define READ_BYTES (32u << 10)
#ifdef WITH_TLS
#define FULL_READ_BYTES 1 /* a read gives one record, and there may be more that no epoll tells of */
#else
#define FULL_READ_BYTES READ_BYTES
#endif

struct connection {
    int fd, in_flight;
    bool wants_write;
    uint8_t *in, *out;
    size_t in_size, in_room, out_size, out_sent, out_room;
#ifdef WITH_TLS
    SSL *tls;
#endif
};

static struct connection *connections;
static int poll_fd, open_connections;
static uint64_t bytes_in;

static void frames_in(struct connection *c);
static void lost(struct connection *c, const char *why);

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s (%s:%d): %s\n", what, opt.host, opt.port, strerror(errno));
    exit(1);
}

static void *room(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        die("cannot pin to --core");
}

#ifdef WITH_TLS

/* Shakes hands, while the socket still blocks. Certificates are not checked: the load is not what is measured. */
static void secure(struct connection *c) {
    static SSL_CTX *context;
    if (context == NULL && (context = SSL_CTX_new(TLS_client_method())) == NULL)
        die("no TLS");
    c->tls = SSL_new(context);
    if (c->tls == NULL || SSL_set_fd(c->tls, c->fd) != 1 || SSL_connect(c->tls) != 1)
        die("TLS handshake failed");
}

static ssize_t tls_result(struct connection *c, int done) {
    if (done > 0)
        return done;
    int why = SSL_get_error(c->tls, done);
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t take_bytes(struct connection *c, void *to, size_t most) {
    return tls_result(c, SSL_read(c->tls, to, (int)most));
}

static ssize_t give_bytes(struct connection *c, const void *from, size_t size) {
    return tls_result(c, SSL_write(c->tls, from, (int)size));
}

#else

static void secure(struct connection *c) {
    (void)c;
}

static ssize_t take_bytes(struct connection *c, void *to, size_t most) {
    return read(c->fd, to, most);
}

static ssize_t give_bytes(struct connection *c, const void *from, size_t size) {
    return write(c->fd, from, size);
}

#endif

static uint8_t *out_room(struct connection *c, size_t size) {
    if (c->out_size + size > c->out_room) {
        c->out_room = (c->out_size + size) * 2;
        c->out = realloc(c->out, c->out_room);
        if (c->out == NULL)
            die("out of memory");
    }
    uint8_t *at = c->out + c->out_size;
    c->out_size += size;
    return at;
}

static void flush_out(struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t n = give_bytes(c, c->out + c->out_sent, c->out_size - c->out_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* full: epoll tells when to go on; broken: the next read tells */
        c->out_sent += (size_t)n;
    }
    if (c->out_sent == c->out_size)
        c->out_sent = c->out_size = 0;
    bool wants_write = c->out_size > 0;
    if (wants_write != c->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->wants_write = wants_write;
    }
}

static void close_connection(struct connection *c, const char *why) {
    lost(c, why);
    close(c->fd);
    c->fd = -1;
    open_connections--;
}

/* Forgets what `frames_in` has dealt with. */
static void take_in(struct connection *c, size_t size) {
    c->in_size -= size;
    memmove(c->in, c->in + size, c->in_size);
}

/* Reads some bytes and has them dealt with; whether there may be more. */
static bool read_some(struct connection *c) {
    if (c->in_room - c->in_size < READ_BYTES) {
        c->in_room *= 2;
        c->in = realloc(c->in, c->in_room);
        if (c->in == NULL)
            die("out of memory");
    }
    ssize_t n = take_bytes(c, c->in + c->in_size, READ_BYTES);
    if (n > 0) {
        c->in_size += (size_t)n;
        bytes_in += (uint64_t)n;
        frames_in(c);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_connection(c, n == 0 ? "connection closed by the server" : strerror(errno));
    }
    return n >= (ssize_t)FULL_READ_BYTES && c->fd >= 0;
}

static void read_in(struct connection *c) {
    while (read_some(c))
        ;
}

static void wait_once(int wait_ms) {
    struct epoll_event events[256];
    int ready = epoll_wait(poll_fd, events, 256, wait_ms);
    for (int i = 0; i < ready; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->fd >= 0 && events[i].events & EPOLLOUT)
            flush_out(c);
        if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_in(c);
    }
}

static void allow_files(int count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)count + 64) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void connect_all(int count) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int yes = 1;
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1)
        die("--host must be an IPv4 address");
    signal(SIGPIPE, SIG_IGN);
    allow_files(count);
    poll_fd = epoll_create1(0);
    connections = room(sizeof *connections * (size_t)count);
    for (int i = 0; i < count; i++) {
        struct connection *c = &connections[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
            die("cannot connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        secure(c);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->in_room = 1 << 16;
        c->in = room(c->in_room);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
    }
    open_connections = count;
}

#endif
