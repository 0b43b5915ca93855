/*
 * Errors: the thread-local message chain behind rmr_error_message().
 *
 * The function where something goes wrong starts a message and returns the status in one line:
 *
 *	if (length > limit)
 *		return error_set(RMR_TOO_LONG, "%zu bytes, the limit is %zu", length, limit);
 *	if (fd < 0)
 *		return error_errno(RMR_SYSTEM, errno, "open %s", path);
 *
 * A caller that passes the failure on may put before it what it was doing, and passes it on in the
 * same line:
 *
 *	return error_context(status, "connect to %s", address);
 *
 * rmr_error_message() then reads "too-long: connect to shm:cache: 9000 bytes, the limit is
 * 4096". A message says what was being done, with what, and what to do about it.
 *
 * The chain has a fixed size and is never allocated; what does not fit is cut off at the end and
 * marked with "...". Each thread has its own, so nothing here locks. errno is left as it was.
 * These functions are for failures only: RMR_AGAIN on a hot path is returned without a message.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <remora/status.h>

/* Bytes of the whole chain with its terminating zero. */
#define ERROR_CHAIN_SIZE 1024

/* Starts a new message, dropping the old one. Returns `status`. */
__attribute__((cold, format(printf, 2, 3))) enum rmr_status error_set(enum rmr_status status,
								      const char *format, ...);

/* The same, followed by ": " and the text of the errno value `errnum`. */
__attribute__((cold, format(printf, 3, 4))) enum rmr_status error_errno(enum rmr_status status,
									int errnum,
									const char *format, ...);

/* Puts "what was being done: " before the message and returns `status`, which becomes the status
 * that the message tells. With RMR_OK nothing changes. */
__attribute__((cold, format(printf, 2, 3))) enum rmr_status error_context(enum rmr_status status,
									  const char *format, ...);

/* Forgets this thread's message. */
void error_clear(void);

/* The chain alone, without the name of the status before it. "" when there is none. */
const char *error_chain(void);

/* The status by which the message was set; RMR_OK when there is none. */
enum rmr_status error_status(void);

#endif
