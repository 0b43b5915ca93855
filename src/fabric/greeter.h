/*
 * A listening socket whose callers have to introduce themselves: with a fixed number of bytes,
 * within a deadline. Only those who did are handed out. For providers whose connections begin with
 * a TCP connection; what is a good introduction they say by struct greeter_language.
 *
 * Two languages can share a socket (rmr_listener_options.beside): a host, which accepts, and a
 * guest, to which it hands callers who do not speak its own language, but the guest's.
 */
#ifndef FABRIC_GREETER_H
#define FABRIC_GREETER_H

#include "fabric/provider.h"

#define GREETER_HELLO_MAX   256 /* bytes of an introduction */
#define GREETER_TELLING	    4	/* of them tell languages apart; all are longer */
#define GREETER_REFUSAL_MAX 256

enum greeter_verdict {
	GREETER_MORE,	       /* good so far */
	GREETER_DONE,	       /* a good introduction */
	GREETER_OTHER_VERSION, /* one of ours, but of another version: is told so */
	GREETER_BAD,	       /* something else; *reason says what */
};

struct greeter_language {
	const char *name;  /* before each line of the log: "tcp" */
	size_t hello_size; /* at most GREETER_HELLO_MAX */
	/* Judges the first `have` bytes of a caller, 1..hello_size. With all of them it does not
	 * say GREETER_MORE. */
	enum greeter_verdict (*judge)(const uint8_t *bytes, size_t have, const char **reason);
	/* Writes a refusal of at most GREETER_REFUSAL_MAX bytes; returns its length. */
	size_t (*refuse)(uint8_t *to, const char *reason);
};

struct greeter {
	struct rmr_listener *listener; /* its fd: epoll set of socket and pending callers */
	const struct greeter_language *language;
	pthread_mutex_t lock;
	int socket;
	bool listening;	    /* the socket is watched; not while too many are pending */
	uint64_t resume_ns; /* no descriptor was free: try again then; 0: not so */
	int pending_count;
	struct list pending; /* callers, the oldest first */
	/* Locks are taken in this order: the host's, the guest's. */
	struct greeter *host;  /* whose socket this is; ours is a duplicate. Constant */
	struct greeter *guest; /* who gets those whom we do not understand; under our lock */
};

/* Somebody who introduced himself well. The socket is the taker's. */
struct greeter_caller {
	int fd;
	char peer[64];
	uint8_t hello[GREETER_HELLO_MAX];
};

/* Listens at "host:port"; fills listener->fd and ->address. The options are the listener's. */
enum rmr_status greeter_init(struct greeter *greeter, struct rmr_listener *listener,
			     const struct greeter_language *language, const char *address);
void greeter_fini(struct greeter *greeter);

/* As listener_next of struct rmr_provider. Any thread may call. */
enum rmr_status greeter_next(struct greeter *greeter, struct greeter_caller *caller, int *wait_ms);

/* Tells a caller why not, if its socket takes that at once, and closes the socket. */
void greeter_refuse(const struct greeter_language *language, int fd, const char *reason);

#endif
