/*
 * Ends that meet: a connection that is closed while it is lost, a listener that goes while somebody
 * serves it. Both sides are in this process, so that its one runtime has to do with both at once;
 * what was freed too early is found by the checking builds.
 */
#include <pthread.h>

#include "fixture.h"

static _Atomic(RdmaConn *) accepted_conn;

/* With a disconnect callback the library leaves the closing to us. */
static void ignore_loss(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	(void)conn;
	(void)status;
	(void)reason;
}

static void keep_accepted(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnSetDisconnectCallback(conn, ignore_loss);
	accepted_conn = conn;
}

struct pair {
	pthread_barrier_t barrier;
	RdmaConn *caller;
	unsigned rounds;
};

static void *close_caller(void *arg)
{
	struct pair *pair = arg;

	for (unsigned i = 0; i < pair->rounds; i++) {
		pthread_barrier_wait(&pair->barrier);
		rdmaConnClose(pair->caller);
		pthread_barrier_wait(&pair->barrier);
	}
	return NULL;
}

/* Both ends are closed at the same time, so each is lost while it is being closed. */
static void test_close_both(void)
{
	struct pair pair = {.rounds = 150};
	RdmaListener *listener;
	pthread_t thread;

	pthread_barrier_init(&pair.barrier, NULL, 2);
	CHECK_RDMA(rdmaServer(&listener, setup_address(), 0));
	rdmaServerSetAcceptCallback(listener, keep_accepted);
	CHECK_RDMA(rdmaServerStartAsync(listener));
	CHECK_EQ(pthread_create(&thread, NULL, close_caller, &pair), 0);
	for (unsigned i = 0; i < pair.rounds; i++) {
		accepted_conn = NULL;
		pair.caller = rdmaConn();
		CHECK_RDMA(rdmaConnect(pair.caller, setup_address(), rdmaServerPort(listener)));
		AWAIT(accepted_conn != NULL);
		pthread_barrier_wait(&pair.barrier);
		rdmaConnClose(accepted_conn);
		pthread_barrier_wait(&pair.barrier);
	}
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&pair.barrier);
	rdmaServerRelease(listener);
	rdmaRuntimeStop();
}

static void *serve(void *arg)
{
	CHECK_RDMA(rdmaServerStart(arg));
	return NULL;
}

/* Who serves returns when the listener goes, by whichever way, and it is not freed before. */
static void test_end_while_serving(void)
{
	for (unsigned i = 0; i < 24; i++) {
		RdmaListener *listener;
		RdmaConn *caller;
		pthread_t thread;

		CHECK_RDMA(rdmaServer(&listener, setup_address(), 0));
		CHECK_EQ(pthread_create(&thread, NULL, serve, listener), 0);
		/* Whoever is let in knows that it is served: later it may not be begun any more. */
		caller = rdmaConn();
		CHECK_RDMA(rdmaConnect(caller, setup_address(), rdmaServerPort(listener)));
		if (i % 2) {
			rdmaServerRelease(listener);
			rdmaConnClose(caller);
		} else {
			rdmaRuntimeStop();
		}
		pthread_join(thread, NULL);
	}
	rdmaRuntimeStop();
}

struct maker {
	atomic_bool is_over;
	atomic_uint made, refused;
};

static void *make_listeners(void *arg)
{
	struct maker *maker = arg;
	RdmaListener *listener;

	while (!maker->is_over) {
		if (rdmaServer(&listener, setup_address(), 0) == RDMA_OK) {
			maker->made++;
		} else {
			CHECK_EQ(rdmaErrorStatus(), RMR_CANCELED);
			maker->refused++;
		}
	}
	return NULL;
}

/* Listeners made while the runtime is stopped are refused, or go with it. */
static void test_make_while_stopping(void)
{
	struct maker maker = {0};
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, make_listeners, &maker), 0);
	for (unsigned i = 0; i < 100; i++) {
		rdmaRuntimeStop();
		test_sleep_ms(1);
	}
	/* Where all is slow every one may have been refused; once nobody stops it, none is. */
	AWAIT(maker.made > 0);
	maker.is_over = true;
	pthread_join(thread, NULL);
	rdmaRuntimeStop();
}

const struct test ends_tests[] = {
	{"ends_close_both", test_close_both},
	{"ends_while_serving", test_end_while_serving},
	{"ends_make_while_stopping", test_make_while_stopping},
	{0},
};
