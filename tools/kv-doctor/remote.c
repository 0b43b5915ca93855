/*
 * --server: the other end. The name is resolved, every path that could lead there is tried, and by
 * the one that a client would take the server is asked what it is. Nothing is changed there unless
 * --write is given, and then a key of our own alone.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <remora/kv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "client/internal.h"
#include "common/flag_words.h"
#include "doctor.h"
#include "fabric/inet.h"
#include "kv/protocol.h"

#define GROUP "Server"
#define PINGS 32

struct remote {
	const struct config *config;
	struct report *report;
	struct outcomes *outcomes;
	struct target_list targets; /* what the name means by CONN_MODE_AUTO */
	int port;		    /* as the name has it */
	enum path only;		    /* a URL names its path; PATH_AUTO: it does not */
	bool is_denied;		    /* of which has been told */
};

static const struct {
	const char *prefix;
	enum path path;
} schemes[] = {
	{"shm:", PATH_SHM},	  {"tcp://", PATH_TCP},
	{"verbs://", PATH_VERBS}, {"verbs+socket://", PATH_SOCKET},
	{"ofi:", PATH_OFI},
};

static const conn_mode_t modes[PATH_COUNT] = {
	[PATH_AUTO] = CONN_MODE_AUTO, [PATH_SHM] = CONN_MODE_SHM,	[PATH_TCP] = CONN_MODE_TCP,
	[PATH_VERBS] = CONN_MODE_CM,  [PATH_SOCKET] = CONN_MODE_SOCKET, [PATH_OFI] = CONN_MODE_AUTO,
};

/* ------------------------------------------------------------------------------------------
 * The name
 */

/* "10.0.0.1, ::1" */
static void list_addresses(const struct addrinfo *list, char *to, size_t size)
{
	size_t used = 0;

	to[0] = '\0';
	for (const struct addrinfo *at = list; at && used < size; at = at->ai_next) {
		char text[NI_MAXHOST];

		if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), NULL, 0,
				NI_NUMERICHOST) == 0)
			used += (size_t)snprintf(to + used, size - used, "%s%s", used ? ", " : "",
						 text);
	}
}

/* False: the name leads nowhere. */
static bool check_name(struct remote *remote)
{
	const char *server = remote->config->server, *address;
	struct addrinfo *list;
	struct finding *finding;
	char text[256];

	if (remote->only == PATH_SHM)
		return true;
	/* The last is by tcp, or else by a network, too. */
	address = remote->targets.targets[remote->targets.count - 1].address;
	if (!address[0])
		return true;
	remote->port = atoi(strrchr(address, ':') + 1);
	if (inet_resolve(address, false, &list) != RMR_OK) {
		finding = report_add(remote->report, GROUP, "name", VERDICT_FAIL, "%s",
				     error_chain());
		report_fix(finding,
			   "getent hosts HOST # then DNS, /etc/hosts, or the spelling of "
			   "%s",
			   server);
		return false;
	}
	list_addresses(list, text, sizeof(text));
	freeaddrinfo(list);
	report_add(remote->report, GROUP, "name", VERDICT_OK, "%s is %s", server, text);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

static kv_client_t *make_client(const struct config *config, conn_mode_t mode)
{
	kv_client_options_t options = {
		.timeout_ms = config->timeout_ms,
		.connect_timeout_ms = config->timeout_ms,
		.key_file = config->key_file,
		.no_reconnect = true,
	};
	kv_client_t *client = kv_client_create_with(mode, &options);

	if (client)
		return client;
	fputs("kv-doctor: no memory for a client\n", stderr);
	exit(1);
}

static const char *own_key(const struct config *config)
{
	const char *environment = getenv("REMORA_KEY_FILE");

	if (config->key_file)
		return config->key_file;
	return environment && *environment ? environment : NULL;
}

static void fix_key(const struct remote *remote, struct finding *finding, const char *error)
{
	const char *key = own_key(remote->config);

	if (strstr(error, "this server has none"))
		report_fix(finding,
			   "kv-doctor --server %s # without --key-file and "
			   "REMORA_KEY_FILE",
			   remote->config->server);
	else if (key)
		report_fix(finding,
			   "head -1 %s | sha256sum # the same as on the server, of the "
			   "file that its --key-file names",
			   key);
	else
		report_fix(finding,
			   "kv-doctor --server %s --key-file FILE # a copy of the file "
			   "that the server's --key-file names",
			   remote->config->server);
}

/* Tells once that the server does not know us. */
static void add_denied(struct remote *remote, const char *error)
{
	if (remote->is_denied)
		return;
	remote->is_denied = true;
	fix_key(remote,
		report_add(remote->report, GROUP, "authentication", VERDICT_FAIL, "%s", error),
		error);
}

static bool is_about_keys(int status, const char *error)
{
	return status == KV_DENIED && (strstr(error, "key") || strstr(error, "proof"));
}

static int compare(const void *a, const void *b)
{
	const uint64_t *first = a, *second = b;

	return *first < *second ? -1 : *first > *second;
}

static void add_round_trip(struct remote *remote, kv_client_t *client, struct outcome *outcome)
{
	uint64_t times[PINGS];
	int status = KV_OK;

	for (int i = 0; i < PINGS && status == KV_OK; i++)
		status = kv_client_ping(client, &times[i]);
	outcome->works = status == KV_OK;
	if (status != KV_OK) {
		snprintf(outcome->reason, sizeof(outcome->reason), "%s",
			 flag_words(kv_client_error(client)));
		report_add(remote->report, GROUP, outcome->device, VERDICT_FAIL,
			   "connected, but a ping failed: %s", flag_words(kv_client_error(client)));
		return;
	}
	qsort(times, PINGS, sizeof(times[0]), compare);
	report_add(remote->report, GROUP, outcome->device, VERDICT_OK,
		   "connected; a round trip takes %.1f us", (double)times[PINGS / 2] / 1000);
}

static void add_no_connection(struct remote *remote, int status, const char *error,
			      struct outcome *outcome)
{
	bool wanted = remote->config->want == outcome->path || remote->only == outcome->path;
	size_t length = strlen(outcome->device);
	struct finding *finding;

	/* A client that tried one device names it first. */
	if (strncmp(error, outcome->device, length) == 0 && strncmp(error + length, ": ", 2) == 0)
		error += length + 2;
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", error);
	finding = report_add(remote->report, GROUP, outcome->device,
			     wanted || is_about_keys(status, error) ? VERDICT_FAIL : VERDICT_WARN,
			     "%s", error);
	if (is_about_keys(status, error)) {
		fix_key(remote, finding, error); /* the verdict takes the first fix */
		add_denied(remote, error);
	} else if (status == KV_PROTOCOL) {
		report_fix(finding, "kv-server --version # on the server; here it is kv-doctor "
				    "--version");
	} else if (outcome->path == PATH_SHM) {
		report_fix(finding,
			   "kv-server -p %d # on this host, by the same user, or with "
			   "--any-user",
			   remote->port);
	} else if (outcome->path == PATH_TCP) {
		report_fix(finding,
			   "kv-server -p %d # on the server; then its firewall: kv-doctor "
			   "-p %d there",
			   remote->port, remote->port);
	} else {
		report_fix(finding, "kv-doctor --want %s # on the server",
			   path_names[outcome->path]);
	}
}

/* Why a path need not be tried; NULL: try it. From the targets that AUTO would try. */
static const char *no_way(const struct remote *remote, enum path path)
{
	const char *device = path == PATH_SHM	? "shm"
			     : path == PATH_TCP ? "tcp"
			     : path == PATH_OFI ? "ofi"
						: "verbs";
	const char *reason = NULL;

	if (remote->only != PATH_AUTO)
		return remote->only == path ? NULL : "the URL names another one";
	for (int i = 0; i < remote->targets.count; i++) {
		const struct target *target = &remote->targets.targets[i];

		if (strncmp(target->device, device, strlen(device)) != 0)
			continue;
		if (!target->reason[0])
			return NULL;
		reason = target->reason;
	}
	return reason;
}

static void add_no_way(struct remote *remote, enum path path, const char *reason)
{
	bool wanted = remote->config->want == path;
	struct finding *finding = report_add(remote->report, GROUP, path_names[path],
					     wanted ? VERDICT_FAIL : VERDICT_NONE, "%.*s",
					     clause_length(reason), reason);

	if (wanted && path == PATH_SHM)
		report_fix(finding, "kv-doctor --server %s --want tcp # shm is for one host",
			   remote->config->server);
	else if (wanted)
		report_fix(finding, "kv-doctor --want %s # tells what this machine needs",
			   path_names[path]);
}

static void try_path(struct remote *remote, enum path path)
{
	struct outcome *outcome = outcome_add(remote->outcomes, path, path_names[path]);
	const char *reason = no_way(remote, path);
	kv_client_t *client;
	int status;

	if (!outcome)
		return;
	if (reason) {
		snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
		if (remote->only == PATH_AUTO)
			add_no_way(remote, path, reason);
		return;
	}
	client = make_client(remote->config, modes[path]);
	status = kv_client_connect(client, remote->config->server, remote->config->port);
	if (status == KV_OK)
		add_round_trip(remote, client, outcome);
	else
		add_no_connection(remote, status, flag_words(kv_client_error(client)), outcome);
	kv_client_destroy(client);
}

/* ------------------------------------------------------------------------------------------
 * What the server is
 */

/* The number behind a name in the server's figures; 0: there is none. */
static uint64_t figure(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; *line;) {
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return 0;
}

/* Rounded down, such as 189MiB: nobody wants to know the rest. */
static const char *rough_size(uint64_t bytes, char text[SIZE_TEXT_LENGTH])
{
	uint64_t unit = 1;

	while (bytes / unit >= 10240)
		unit *= 1024;
	return size_format(bytes - bytes % unit, text);
}

static void check_stats(struct remote *remote, kv_client_t *client)
{
	char *text, memory[SIZE_TEXT_LENGTH], free_memory[SIZE_TEXT_LENGTH];
	uint64_t clients, clients_max, workers;
	struct finding *finding;
	bool full;

	if (kv_client_stats(client, &text) != KV_OK) {
		finding = report_add(remote->report, GROUP, "limits", VERDICT_WARN, "%s",
				     flag_words(kv_client_error(client)));
		report_fix(finding, "kv-client -a %s stats", remote->config->server);
		return;
	}
	clients = figure(text, "clients");
	clients_max = figure(text, "clients_max");
	workers = figure(text, "workers");
	full = clients_max && clients * 10 >= clients_max * 9;
	finding = report_add(remote->report, GROUP, "limits", full ? VERDICT_WARN : VERDICT_OK,
			     "protocol %u; %" PRIu64 " of %" PRIu64 " clients, %" PRIu64
			     " worker%s, memory %s with %s free, up for %" PRIu64 " s",
			     KV_PROTOCOL_VERSION, clients, clients_max, workers,
			     workers == 1 ? "" : "s", rough_size(figure(text, "memory"), memory),
			     rough_size(figure(text, "memory_free"), free_memory),
			     figure(text, "uptime_ms") / 1000);
	if (full)
		report_fix(finding, "kv-server --max-clients %" PRIu64, clients_max * 2);
	kv_free(text);
}

static int write_once(kv_client_t *client, double times_us[3])
{
	kv_put_options_t options = {.ttl_ms = 60000};
	char key[64], value[100], got[sizeof(value)];
	size_t length = sizeof(got);
	uint64_t start = clock_now_ns(), now;
	int status, removed;

	/* If we are killed in between, it goes away by itself. */
	snprintf(key, sizeof(key), "kv-doctor-%d-%" PRIx64, (int)getpid(), start);
	memset(value, 'r', sizeof(value));
	status = kv_client_put_with(client, key, strlen(key), value, sizeof(value), &options, NULL);
	if (status != KV_OK)
		return status;
	now = clock_now_ns();
	times_us[0] = (double)(now - start) / 1000;
	start = now;
	status = kv_client_get(client, key, strlen(key), got, &length);
	now = clock_now_ns();
	times_us[1] = (double)(now - start) / 1000;
	start = now;
	removed = kv_client_delete(client, key, strlen(key));
	times_us[2] = (double)(clock_now_ns() - start) / 1000;
	if (status == KV_OK && (length != sizeof(value) || memcmp(got, value, length) != 0))
		status = KV_INTERNAL;
	return status == KV_OK ? removed : status;
}

static void check_writing(struct remote *remote, kv_client_t *client)
{
	struct finding *finding;
	double times_us[3];
	int status = write_once(client, times_us);

	if (status == KV_OK) {
		report_add(remote->report, GROUP, "writing", VERDICT_OK,
			   "100 bytes: put %.1f us, get %.1f us, delete %.1f us", times_us[0],
			   times_us[1], times_us[2]);
		return;
	}
	finding = report_add(remote->report, GROUP, "writing",
			     status == KV_DENIED ? VERDICT_WARN : VERDICT_FAIL, "%s: %s",
			     kv_strerror(status), flag_words(kv_client_error(client)));
	if (status == KV_DENIED)
		report_fix(finding,
			   "kv-doctor --server %s --write --key-file FILE # the key to "
			   "write with, not the one to read with",
			   remote->config->server);
	else
		report_fix(finding, "kv-client -a %s stats # memory_free, and --on-full evict",
			   remote->config->server);
}

static void check_server(struct remote *remote, char *chosen, size_t size)
{
	kv_client_t *client = make_client(remote->config, modes[remote->config->want]);
	int status = kv_client_connect(client, remote->config->server, remote->config->port);

	if (status == KV_OK) {
		snprintf(chosen, size, "%s", flag_words(kv_client_transport(client)));
		report_add(remote->report, GROUP, "authentication", VERDICT_OK, "%s",
			   own_key(remote->config) ? "both ends know the key"
						   : "the server asks for no key");
		check_stats(remote, client);
		if (remote->config->write)
			check_writing(remote, client);
	} else if (is_about_keys(status, flag_words(kv_client_error(client)))) {
		add_denied(remote, flag_words(kv_client_error(client)));
	}
	kv_client_destroy(client);
}

/* Where no path works, the failure of each is one. */
static void mark_failed(struct remote *remote, size_t first)
{
	for (size_t i = first; i < remote->report->count; i++)
		if (remote->report->findings[i].verdict == VERDICT_WARN)
			remote->report->findings[i].verdict = VERDICT_FAIL;
}

void remote_check(const struct config *config, struct report *report, struct outcomes *outcomes,
		  char *chosen, size_t size)
{
	struct remote remote = {
		.config = config, .report = report, .outcomes = outcomes, .port = config->port};
	size_t first = report->count;
	struct finding *finding;

	chosen[0] = '\0';
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strncmp(config->server, schemes[i].prefix, strlen(schemes[i].prefix)) == 0)
			remote.only = schemes[i].path;
	if (targets_find(CONN_MODE_AUTO, config->server, config->port, NULL, &remote.targets) !=
	    KV_OK) {
		finding = report_add(report, GROUP, "name", VERDICT_FAIL, "%s", error_chain());
		report_fix(finding, "kv-doctor --server HOST:PORT");
		return;
	}
	if (remote.targets.count && !check_name(&remote))
		return;
	try_path(&remote, PATH_SHM);
	try_path(&remote, PATH_VERBS);
	if (config->want == PATH_SOCKET || remote.only == PATH_SOCKET)
		try_path(&remote, PATH_SOCKET);
	try_path(&remote, PATH_TCP);
	if (remote.only == PATH_OFI)
		try_path(&remote, PATH_OFI);
	check_server(&remote, chosen, size);
	if (!chosen[0])
		mark_failed(&remote, first);
}
