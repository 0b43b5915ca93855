/*
 * Formatting happens on the caller's stack and the line leaves in one write(2): no lock, no
 * buffer to lose when the process is killed, and no line torn between processes.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"

#define LINE_SIZE 2048

const char *const log_level_names[] = {"error", "warn", "info", "debug", "trace", NULL};

static const char *const labels[] = {"ERROR", "WARN ", "INFO ", "DEBUG", "TRACE"};

atomic_int log_threshold = LOG_LEVEL_WARN;

/* The sink and its context belong together, so a lock guards the pair. Only lines that are really
 * shown take it, for as long as two loads need. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink current_sink;
static void *current_context;
static const char *program_name = "remora";

__attribute__((constructor)) static void guard_sink(void)
{
	fork_guard(FORK_LOCK_LOG, &sink_lock);
}

bool log_level_parse(const char *text, enum log_level *level)
{
	for (int i = 0; log_level_names[i] != NULL; i++) {
		if (strcasecmp(text, log_level_names[i]) == 0) {
			*level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

void log_set_sink(log_sink sink, void *context)
{
	pthread_mutex_lock(&sink_lock);
	current_sink = sink;
	current_context = context;
	pthread_mutex_unlock(&sink_lock);
}

void log_set_name(const char *name)
{
	program_name = name;
}

/* Writes "time name[pid] LEVEL  text" to stderr. A line that cannot be written is lost. */
static void write_line(enum log_level level, const char *text)
{
	char line[LINE_SIZE + 64];
	struct timespec now;
	struct tm local;
	ssize_t written;
	int length;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &local);
	length = snprintf(line, sizeof(line), "%02d:%02d:%02d.%06ld %s[%d] %s %s\n", local.tm_hour,
			  local.tm_min, local.tm_sec, now.tv_nsec / 1000, program_name,
			  (int)getpid(), labels[level], text);
	if (length >= (int)sizeof(line)) {
		length = sizeof(line) - 1;
		line[length - 1] = '\n';
	}
	do {
		written = write(STDERR_FILENO, line, (size_t)length);
	} while (written < 0 && errno == EINTR);
}

void log_write(enum log_level level, const char *format, ...)
{
	int saved_errno = errno;
	char text[LINE_SIZE];
	log_sink sink;
	void *context;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (length >= (int)sizeof(text))
		memcpy(text + sizeof(text) - 4, "...", 4);

	pthread_mutex_lock(&sink_lock);
	sink = current_sink;
	context = current_context;
	pthread_mutex_unlock(&sink_lock);

	if (sink != NULL)
		sink(level, text, context);
	else
		write_line(level, text);
	errno = saved_errno;
}

/* Runs before main(), so that the level holds from the first line on. */
__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("REMORA_LOG");
	enum log_level level;

	if (text == NULL || text[0] == '\0')
		return;
	if (log_level_parse(text, &level))
		log_set_level(level);
	else
		log_warn("REMORA_LOG: '%s' is not a level; use error, warn, info, debug or trace",
			 text);
}

bool log_limit_pass(struct log_limit *limit)
{
	uint64_t now = clock_now_ns();
	uint64_t before = atomic_load_explicit(&limit->begin_ns, memory_order_relaxed);
	unsigned count;

	/* Relaxed throughout: a line more or less when a period ends does no harm. */
	if ((before == 0 || now - before >= LOG_LIMIT_SECONDS * UINT64_C(1000000000)) &&
	    atomic_compare_exchange_strong_explicit(&limit->begin_ns, &before, now,
						    memory_order_relaxed, memory_order_relaxed)) {
		count = atomic_exchange_explicit(&limit->count, 0, memory_order_relaxed);
		if (count > LOG_LIMIT_LINES)
			log_write(LOG_LEVEL_WARN, "(%u more like the next one were left out)",
				  count - LOG_LIMIT_LINES);
	}
	count = atomic_fetch_add_explicit(&limit->count, 1, memory_order_relaxed);
	if (count == LOG_LIMIT_LINES)
		log_write(LOG_LEVEL_WARN, "(more like this are left out for %d s)",
			  LOG_LIMIT_SECONDS);
	return count < LOG_LIMIT_LINES;
}
