/*
 * The control server's life: create checks and reads files, start opens what the loop needs and
 * lets it run, stop ends it and gives all of that back. All of it runs in the program's threads,
 * one call at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "control/gzip.h"
#include "control/server/internal.h"

#define DEFAULT_ADDRESS	    "127.0.0.1:50051"
#define DEFAULT_CONNECTIONS 1024u
#define DEFAULT_STREAMS	    128u
#define DEFAULT_MESSAGE	    (4u << 20)
#define DEFAULT_HEADERS	    (64u << 10)
#define DEFAULT_BUFFERED    ((size_t)64 << 20)
#define DEFAULT_KEEPALIVE   60000
#define DEFAULT_STALL	    20000
#define DEFAULT_STOP	    2000
#define DEFAULT_INLINE	    (64u << 10)
#define DEFAULT_EXPIRY	    30000

#define MOST_CONNECTIONS 1000000u
#define MOST_STREAMS	 65536u
#define MOST_MESSAGE	 (1u << 30)
#define MOST_HEADERS	 (128u << 10) /* nghttp2 ends connections that send much more */
#define LEAST_MESSAGE	 1024u
#define LEAST_HEADERS	 1024u

static _Thread_local char last_error[ERROR_CHAIN_SIZE];

const char *kv_control_server_error(void)
{
	return last_error;
}

int control_fail(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last_error, sizeof(last_error), format, arguments);
	va_end(arguments);
	return status;
}

int control_fail_rmr(enum rmr_status status)
{
	int failed = KV_INTERNAL;

	if (status == RMR_NO_MEMORY || status == RMR_LIMIT)
		failed = KV_NO_MEMORY;
	else if (status == RMR_INVALID || status == RMR_BAD_ADDRESS)
		failed = KV_INVALID;
	else if (status == RMR_NO_DEVICE || status == RMR_UNSUPPORTED)
		failed = KV_UNSUPPORTED;
	return control_fail(failed, "%s", error_chain());
}

/* ------------------------------------------------------------------------------------------
 * Options
 */

#define DEFAULT_TO(field, value)                                                                   \
	do {                                                                                       \
		if (!(field))                                                                      \
			(field) = (value);                                                         \
	} while (0)

void kv_control_server_defaults(kv_control_server_options_t *options)
{
	DEFAULT_TO(options->max_connections, DEFAULT_CONNECTIONS);
	DEFAULT_TO(options->max_streams, DEFAULT_STREAMS);
	DEFAULT_TO(options->max_message, DEFAULT_MESSAGE);
	DEFAULT_TO(options->max_headers, DEFAULT_HEADERS);
	DEFAULT_TO(options->max_buffered, DEFAULT_BUFFERED);
	/* One connection's share has to hold a message coming and one going. */
	if (options->max_buffered < (size_t)16 * options->max_message)
		options->max_buffered = (size_t)16 * options->max_message;
	DEFAULT_TO(options->keepalive_ms, DEFAULT_KEEPALIVE);
	DEFAULT_TO(options->stall_ms, DEFAULT_STALL);
	DEFAULT_TO(options->stop_timeout_ms, DEFAULT_STOP);
	DEFAULT_TO(options->inline_limit, DEFAULT_INLINE);
	DEFAULT_TO(options->client_expiry_ms, DEFAULT_EXPIRY);
}

static void fill_defaults(kv_control_server_options_t *options)
{
	DEFAULT_TO(options->address, DEFAULT_ADDRESS);
	kv_control_server_defaults(options);
}

static int check(const kv_control_server_options_t *options, char address[CONTROL_ADDRESS])
{
	if (!control_listen_address(options->address, address))
		return control_fail(KV_INVALID,
				    "'%s' is no address for gRPC; write HOST:PORT, such as "
				    "0.0.0.0:50051, or PORT for this machine alone",
				    options->address);
	if (options->max_connections > MOST_CONNECTIONS)
		return control_fail(KV_INVALID, "%u connections: the most is %u",
				    options->max_connections, MOST_CONNECTIONS);
	if (options->max_streams > MOST_STREAMS)
		return control_fail(KV_INVALID, "%u calls on a connection: the most is %u",
				    options->max_streams, MOST_STREAMS);
	if (options->max_message < LEAST_MESSAGE || options->max_message > MOST_MESSAGE)
		return control_fail(KV_INVALID, "messages of %u bytes: it goes from %u to %u",
				    options->max_message, LEAST_MESSAGE, MOST_MESSAGE);
	if (options->max_headers < LEAST_HEADERS || options->max_headers > MOST_HEADERS)
		return control_fail(KV_INVALID, "headers of %u bytes: it goes from %u to %u",
				    options->max_headers, LEAST_HEADERS, MOST_HEADERS);
	if (options->keepalive_ms < 0 || options->stall_ms < 0 || options->stop_timeout_ms < 0 ||
	    options->client_expiry_ms < 0)
		return control_fail(KV_INVALID, "a time limit below 0");
	return KV_OK;
}

int kv_control_server_check(const kv_control_server_options_t *given)
{
	kv_control_server_options_t options = given ? *given : (kv_control_server_options_t){0};
	char address[CONTROL_ADDRESS];
	SSL_CTX *tls;
	int status;

	fill_defaults(&options);
	status = check(&options, address);
	if (status == KV_OK)
		status = tls_create(&options, &tls);
	if (status == KV_OK)
		SSL_CTX_free(tls);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Create and destroy
 */

static int keep_name(const char **name, char **copy)
{
	if (!*name)
		return KV_OK;
	*name = *copy = strdup(*name);
	return *copy ? KV_OK : control_fail(KV_NO_MEMORY, "no memory for a name");
}

/* Of the files, to read them anew. */
static int keep_names(struct kv_control_server *control)
{
	kv_control_server_options_t *options = &control->options;
	int status = keep_name(&options->tls_cert, &control->tls_cert);

	if (status == KV_OK)
		status = keep_name(&options->tls_key, &control->tls_key);
	if (status == KV_OK)
		status = keep_name(&options->tls_client_ca, &control->tls_client_ca);
	return status;
}

/* --node-id as a number, if it is one. */
static bool parse_id(const char *text, uint32_t *id)
{
	uint64_t number = 0;

	for (; *text >= '0' && *text <= '9' && number <= UINT32_MAX; text++)
		number = 10 * number + (uint64_t)(*text - '0');
	if (*text || number > UINT32_MAX)
		return false;
	*id = (uint32_t)number;
	return true;
}

static void name_server(struct kv_control_server *control)
{
	const char *node_id = server_node_id(control->server);
	uint64_t instance = server_instance(control->server);

	if (*node_id)
		snprintf(control->server_name, sizeof(control->server_name), "%s", node_id);
	else
		snprintf(control->server_name, sizeof(control->server_name), "remora-%016" PRIx64,
			 instance);
	if (!*node_id || !parse_id(node_id, &control->server_id))
		control->server_id = (uint32_t)(instance ^ instance >> 32);
}

int kv_control_server_create(kv_server_t *server, const kv_control_server_options_t *options,
			     kv_control_server_t **result)
{
	struct kv_control_server *control = calloc(1, sizeof(*control));
	int status;

	if (!control)
		return control_fail(KV_NO_MEMORY, "no memory for a gRPC server");
	control->server = server;
	control->store = server_store(server);
	control->epoll_fd = control->wake_fd = control->listener.fd = -1;
	control->access.generation = server_keys_generation(server) - 1;
	pthread_mutex_init(&control->tls_lock, NULL);
	if (options)
		control->options = *options;
	fill_defaults(&control->options);
	status = check(&control->options, control->address);
	if (status == KV_OK)
		status = tls_create(&control->options, &control->tls);
	if (status == KV_OK)
		status = keep_names(control);
	if (status != KV_OK) {
		kv_control_server_destroy(control);
		return status;
	}
	control->uses_tls = control->tls != NULL;
	control->options.address = NULL;
	name_server(control);
	*result = control;
	return KV_OK;
}

void kv_control_server_destroy(kv_control_server_t *control)
{
	if (!control)
		return;
	kv_control_server_stop(control);
	SSL_CTX_free(control->tls);
	keys_wipe(&control->access.keys);
	pthread_mutex_destroy(&control->tls_lock);
	free(control->tls_cert);
	free(control->tls_key);
	free(control->tls_client_ca);
	free(control);
}

const char *kv_control_server_data_addresses(const kv_control_server_t *control)
{
	return control->data_addresses;
}

int kv_control_server_read_certificates(kv_control_server_t *control)
{
	SSL_CTX *tls, *old;
	int status = tls_create(&control->options, &tls);

	if (status != KV_OK || !tls)
		return status;
	pthread_mutex_lock(&control->tls_lock);
	old = control->tls;
	control->tls = tls;
	pthread_mutex_unlock(&control->tls_lock);
	SSL_CTX_free(old);
	return KV_OK;
}

const char *kv_control_server_address(const kv_control_server_t *control)
{
	return control->bound;
}

/* ------------------------------------------------------------------------------------------
 * Start and stop
 */

static void wake_up(struct control_watch *watch, uint32_t events)
{
	uint64_t value;

	(void)events;
	if (read(watch->fd, &value, sizeof(value)) < 0)
		log_debug("a wake-up that was none");
}

static int open_memory(struct kv_control_server *control)
{
	const kv_control_server_options_t *options = &control->options;

	control->budget = (struct grpc_budget){.most = options->max_buffered};
	control->input = malloc(H2_BUFFER);
	control->output = malloc(H2_BUFFER);
	control->value = malloc(SHORT_VALUE);
	/* A message, and as much again for what it is unpacked to. */
	if (control->input && control->output && control->value &&
	    scratch_init(&control->scratch, (size_t)4 * options->max_message + (1u << 20)) &&
	    h2_session_prepare(control))
		return KV_OK;
	return control_fail(KV_NO_MEMORY, "no memory for the gRPC server's buffers");
}

static int open_descriptors(struct kv_control_server *control)
{
	control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	control->wake = (struct control_watch){.fd = control->wake_fd, .ready = wake_up};
	if (control->epoll_fd < 0 || control->wake_fd < 0 ||
	    !control_watch_add(control, &control->wake, EPOLLIN))
		return control_fail(KV_INTERNAL, "epoll or eventfd: %s", strerror(errno));
	return KV_OK;
}

static int open_plane(struct kv_control_server *control)
{
	if (control->options.no_data_plane)
		return KV_OK;
	if (data_plane_open(control, &control->plane) != RMR_OK) {
		control->plane = NULL;
		log_warn("gRPC: values can be neither pushed nor pulled: %s", error_chain());
	}
	return KV_OK;
}

/* Signals are the program's. */
static int start_thread(struct kv_control_server *control)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&control->thread, NULL, loop_run, control);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return control_fail(KV_NO_MEMORY, "cannot start a thread: %s", strerror(error));
	control->runs = true;
	pthread_setname_np(control->thread, "kv-control");
	return KV_OK;
}

int control_open(struct kv_control_server *control)
{
	int status;

	control->has_open_parts = true;
	control->is_stopping = control->is_unhealthy = control->accept_paused = false;
	atomic_store(&control->stop, false);
	list_init(&control->conns);
	list_init(&control->dirty);
	list_init(&control->over);
	list_init(&control->hungry);
	list_init(&control->watchers);
	control->next_check_ns = 0;
	status = open_memory(control);
	if (status == KV_OK && store_worker_open(control->store, &control->worker) != RMR_OK)
		status = control_fail_rmr(error_status());
	if (status == KV_OK)
		status = open_descriptors(control);
	if (status == KV_OK)
		status = open_plane(control);
	return status;
}

int kv_control_server_start(kv_control_server_t *control)
{
	int status;

	if (control->has_open_parts)
		return control_fail(KV_INVALID, "the gRPC server is started already");
	status = control_open(control);
	if (status == KV_OK)
		status = control_listen_open(control);
	if (status == KV_OK)
		status = start_thread(control);
	if (status != KV_OK)
		kv_control_server_stop(control);
	return status;
}

static void free_calls(struct kv_control_server *control)
{
	while (control->spare_calls) {
		struct rpc *rpc = control->spare_calls;

		control->spare_calls = rpc->next_spare;
		free(rpc);
	}
	control->spare_count = 0;
}

void control_close(struct kv_control_server *control)
{
	if (control->plane)
		data_plane_close(control->plane);
	control->plane = NULL;
	if (control->worker)
		store_worker_close(control->worker);
	control->worker = NULL;
	if (control->wake_fd >= 0)
		close(control->wake_fd);
	if (control->epoll_fd >= 0)
		close(control->epoll_fd);
	control->wake_fd = control->epoll_fd = -1;
	free_calls(control);
	deadlines_fini(&control->deadlines);
	h2_session_forget(control);
	scratch_fini(&control->scratch);
	gzip_packer_destroy(control->packer);
	free(control->packed);
	control->packer = NULL;
	control->packed = NULL;
	free(control->input);
	free(control->output);
	free(control->value);
	control->input = control->output = control->value = NULL;
	control->bound[0] = control->data_addresses[0] = '\0';
	control->has_open_parts = false;
}

void kv_control_server_stop(kv_control_server_t *control)
{
	if (!control->has_open_parts)
		return;
	if (control->runs) {
		/* Release: pairs with the acquire in the loop. */
		atomic_store_explicit(&control->stop, true, memory_order_release);
		loop_wake(control);
		pthread_join(control->thread, NULL);
		control->runs = false;
	}
	control_listen_close(control);
	control_close(control);
}
