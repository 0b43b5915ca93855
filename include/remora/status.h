/*
 * Status codes: what every call of the fabric answers.
 *
 * A call that can fail returns enum rmr_status: RMR_OK (0) or a negative code. Outputs are written
 * only on success. Beside the code, the thread that made the call can ask rmr_error_message() for
 * a sentence that says what was being done, with what, and what to do about it.
 *
 *	struct rmr_device *device;
 *	if (rmr_device_open("shm", NULL, &device) != RMR_OK)
 *		errx(1, "%s", rmr_error_message());
 */
#ifndef REMORA_STATUS_H
#define REMORA_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define RMR_MUST_CHECK __attribute__((warn_unused_result))

enum rmr_status {
	RMR_OK = 0,
	RMR_AGAIN = -1,		/* nothing to do or no room right now; try again later */
	RMR_INVALID = -2,	/* an argument makes no sense; the message says which */
	RMR_NO_MEMORY = -3,	/* the machine or a configured limit has no memory left */
	RMR_NO_DEVICE = -4,	/* no such device or provider on this machine */
	RMR_UNSUPPORTED = -5,	/* this device cannot do that; see its capabilities */
	RMR_DENIED = -6,	/* the operating system or the owner does not permit it */
	RMR_ACCESS = -7,	/* remote memory: wrong key, out of bounds, or beyond its rights */
	RMR_TOO_LONG = -8,	/* longer than a limit; the message names limit and length */
	RMR_LIMIT = -9,		/* a count is exhausted (connections, regions, slots ...) */
	RMR_TIMEOUT = -10,	/* the deadline passed first */
	RMR_REFUSED = -11,	/* nobody listens there, or the listener turned us down */
	RMR_DISCONNECTED = -12, /* the connection is gone: closed, lost, or the peer died */
	RMR_CANCELED = -13,	/* never carried out, because the connection ended before it */
	RMR_PROTOCOL = -14,	/* the other end speaks something else, or broke the rules */
	RMR_ADDRESS_IN_USE = -15, /* another listener has this address */
	RMR_BAD_ADDRESS = -16,	  /* the address cannot be parsed or resolved */
	RMR_SYSTEM = -17,	  /* an unexpected error of the operating system; see the message */
};

/* The code's name and meaning in a few words, e.g. "timeout: the deadline passed first".
 * Never NULL, also for a number that is no status. The text is constant. */
const char *rmr_status_text(enum rmr_status status);

/* What the last failed call of this thread wanted to say: the status in words, and the chain of
 * what was being done. "" when nothing failed yet. Valid until the thread's next call into the
 * library. */
const char *rmr_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
