/*
 * The runtime: one thread for the process, started by the first who needs it, ended by
 * rdmaRuntimeStop(), and started again by the next.
 *
 * Why no request is lost. Who leaves one sets has_requests and then looks whether the runtime
 * sleeps; the runtime says that it sleeps and then looks at has_requests. All four are sequentially
 * consistent, so at least one of them sees the other's: either the request is found before
 * sleeping, or the eventfd ends the sleep.
 */
#include "rdma/easy/internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

struct runtime runtime = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.conns = {&runtime.conns, &runtime.conns},
	.listeners = {&runtime.listeners, &runtime.listeners},
	.adopts = {&runtime.adopts, &runtime.adopts},
	.closes = {&runtime.closes, &runtime.closes},
	.releases = {&runtime.releases, &runtime.releases},
	.wake_fd = -1,
};

/*
 * pthread_self() of the runtime's thread; 0 when there is none. Every send looks at it. A
 * thread-local flag would be as good in a program, but in a library that can be loaded by dlopen()
 * it costs a call of __tls_get_addr(), and with the initial-exec model the library could not be
 * loaded at all once the program's static TLS is used up.
 *
 * Relaxed is enough: a thread can read its own pthread_self() here only if it stored that itself,
 * for the runtime's thread takes it back before it ends and its name can be used again.
 */
static _Atomic uintptr_t runtime_self;

bool runtime_is_here(void)
{
	return atomic_load_explicit(&runtime_self, memory_order_relaxed) ==
	       (uintptr_t)pthread_self();
}

void runtime_wake(void)
{
	uint64_t one = 1;
	int saved = errno;

	atomic_store(&runtime.has_requests, true);
	if (atomic_load(&runtime.is_asleep) && write(runtime.wake_fd, &one, sizeof(one)) < 0)
		errno = saved; /* full: it wakes just as well */
}

/* A child of fork() has none of its parent's threads: what they had is forgotten. */
static void forget(void)
{
	pthread_mutex_init(&runtime.mutex, NULL);
	pthread_cond_init(&runtime.changed, NULL);
	runtime.is_running = runtime.is_stopping = false;
	runtime.dialers = 0;
	list_init(&runtime.conns);
	list_init(&runtime.listeners);
	list_init(&runtime.adopts);
	list_init(&runtime.closes);
	list_init(&runtime.releases);
	atomic_store_explicit(&runtime_self, 0, memory_order_relaxed);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget);
}

void runtime_lock(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&runtime.mutex);
}

static void *run(void *argument)
{
	(void)argument;
	atomic_store_explicit(&runtime_self, (uintptr_t)pthread_self(), memory_order_relaxed);
	pthread_setname_np(pthread_self(), "rdma-runtime");
	loop_work();
	atomic_store_explicit(&runtime_self, 0, memory_order_relaxed);
	return NULL;
}

static void bind_to_cpu(pthread_t thread, int cpu)
{
	cpu_set_t set;
	int error;

	if (!cpu)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)(cpu - 1), &set);
	error = pthread_setaffinity_np(thread, sizeof(set), &set);
	if (error)
		log_warn("the runtime's thread cannot be bound to CPU %d: %s", cpu - 1,
			 strerror(error));
}

/* Signals are for the program's own threads. */
static int start_thread(void)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&runtime.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static enum rmr_status start(const RdmaOptions *options)
{
	enum rmr_status status;
	int error;

	runtime.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (runtime.wake_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an eventfd");
	status = loop_init();
	if (status != RMR_OK)
		goto close_wake;
	error = start_thread();
	if (error) {
		status = error_errno(RMR_SYSTEM, error, "cannot start the runtime's thread");
		goto fini_loop;
	}
	bind_to_cpu(runtime.thread, options->cpu);
	runtime.is_running = true;
	return RMR_OK;

fini_loop:
	loop_fini();
close_wake:
	close(runtime.wake_fd);
	runtime.wake_fd = -1;
	return status;
}

enum rmr_status runtime_need(const RdmaOptions *options)
{
	enum rmr_status status = RMR_OK;

	runtime_lock();
	if (runtime.is_stopping)
		status = error_set(RMR_CANCELED, "the runtime is being stopped");
	else if (!runtime.is_running)
		status = start(options);
	pthread_mutex_unlock(&runtime.mutex);
	return status;
}

void rdmaRuntimeStop(void)
{
	RdmaOptions defaults;

	if (runtime_is_here()) {
		log_error("rdmaRuntimeStop() was called in a callback, which cannot be");
		return;
	}
	runtime_lock();
	/* Endpoints that were made and never used are the runtime's to free as well. */
	if (!runtime.is_running && !runtime.is_stopping && !list_is_empty(&runtime.conns) &&
	    easy_options_take(NULL, &defaults) == RMR_OK && start(&defaults) != RMR_OK)
		log_error("stopping the runtime: %s", error_chain());
	while (runtime.is_stopping)
		pthread_cond_wait(&runtime.changed, &runtime.mutex);
	if (!runtime.is_running) {
		pthread_mutex_unlock(&runtime.mutex);
		return;
	}
	runtime.is_stopping = true;
	pthread_mutex_unlock(&runtime.mutex);
	runtime_wake();
	pthread_join(runtime.thread, NULL);
	runtime_lock();
	loop_fini();
	close(runtime.wake_fd);
	runtime.wake_fd = -1;
	runtime.is_running = runtime.is_stopping = false;
	pthread_cond_broadcast(&runtime.changed);
	pthread_mutex_unlock(&runtime.mutex);
}
