/*
 * Log: levelled lines for people.
 *
 *	log_warn("huge pages are not available (%s); using small pages", reason);
 *
 * A level that is off costs one load and one compare; its arguments are not evaluated. The level
 * comes from the environment variable REMORA_LOG (error, warn, info, debug, trace) when the
 * program starts, or from log_set_level(). The default is warn: a library is silent unless
 * something deserves attention. A line leaves in one write(2), so lines of several threads and
 * processes do not mix:
 *
 *	14:03:07.512345 remora[4711] WARN  huge pages are not available ...
 *
 * The function that decides about an error logs it; the others pass it on (see error.h).
 * Everything here may be called from any thread. The sink is replaced at start-up or in tests,
 * and is called by whichever thread logs.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
	LOG_LEVEL_TRACE,
};

/* The names of the levels in their order, ended by NULL: ready for an OPTION_CHOICE. */
extern const char *const log_level_names[];

/* The most detailed level that is shown. Read it through log_enabled(). */
extern atomic_int log_threshold;

/* Relaxed: the level orders nothing else, and a change may take effect a little later. */
static inline bool log_enabled(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (log_enabled(level))                                                            \
			log_write(level, __VA_ARGS__);                                             \
	} while (0)

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_trace(...) log_at(LOG_LEVEL_TRACE, __VA_ARGS__)

/* For what a peer can cause: from each place where it stands at most LOG_LIMIT_LINES lines in
 * LOG_LIMIT_SECONDS, then one that says so; and before the next one how many were left out. */
#define log_warn_limited(...)                                                                      \
	do {                                                                                       \
		static struct log_limit limit;                                                     \
		if (log_enabled(LOG_LEVEL_WARN) && log_limit_pass(&limit))                         \
			log_write(LOG_LEVEL_WARN, __VA_ARGS__);                                    \
	} while (0)

#define LOG_LIMIT_LINES	  3
#define LOG_LIMIT_SECONDS 10

struct log_limit {
	_Atomic uint64_t begin_ns; /* of the period; 0: none has begun */
	atomic_uint count;
};

/* May this place log now? Also tells what was left out. */
bool log_limit_pass(struct log_limit *limit);

/* Receives one message, without prefix and newline, cut at a fixed length. */
typedef void (*log_sink)(enum log_level level, const char *text, void *context);

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* Sets *level from its name in any case; false, and *level untouched, when there is no such. */
bool log_level_parse(const char *text, enum log_level *level);

/* Who speaks in the lines on stderr, instead of "remora". Not copied. At start-up, before there are
 * other threads. */
void log_set_name(const char *name);

/* Lines go to `sink` from now on; NULL is the default, stderr. */
void log_set_sink(log_sink sink, void *context);

/* Use the macros above, which check the level first. errno is left as it was. */
__attribute__((cold, format(printf, 2, 3))) void log_write(enum log_level level, const char *format,
							   ...);

#endif
