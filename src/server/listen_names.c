/*
 * Which paths there are to be: from the list that the program gave, or all that the machine has.
 *
 *	shm | shm:NAME | tcp | tcp://HOST[:PORT]
 *	verbs | verbs:ADAPTER[,socket][,gid=3]...[://HOST[:PORT]]
 *	ofi | ofi:PROVIDER[:DOMAIN] | ofi:PROVIDER://HOST[:PORT]
 *
 * A comma separates items, and also a verbs adapter from its options: what cannot be an item by
 * itself belongs to the adapter before it. "fault:" before an item is for tests. Opens nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/internal.h"

#define MAX_ENTRIES 32

static struct server_path *add_path(struct kv_server *server, enum path_kind kind, const char *name)
{
	struct server_path *path;

	if (server->path_count == SERVER_MAX_PATHS || strlen(name) >= sizeof(path->name))
		return NULL;
	path = &server->paths[server->path_count++];
	*path = (struct server_path){.kind = kind};
	snprintf(path->name, sizeof(path->name), "%s", name);
	return path;
}

/* One adapter, "verbs:mlx5_0", with what the options say about all of them, and perhaps an address
 * of its own: "verbs:mlx5_0,socket://10.0.0.1:7471". */
static int add_adapter(struct kv_server *server, const char *item, bool named)
{
	const char *mark = strstr(item, "://"), *address = mark ? mark + 3 : "";
	int name_length = mark ? (int)(mark - item) : (int)strlen(item);
	bool socket = server->options.socket_mode && !strstr(item, ",socket");
	struct server_path *path;
	char text[sizeof(path->name)];
	int length =
		snprintf(text, sizeof(text), "%.*s%s", name_length, item, socket ? ",socket" : "");

	if (length >= (int)sizeof(text) || strlen(address) >= sizeof(path->address) ||
	    !(path = add_path(server, PATH_VERBS, text)))
		return server_fail(KV_INVALID, "'%s': too many paths, or too long a name", item);
	snprintf(path->address, sizeof(path->address), "%s", address);
	path->named = named;
	path->by_socket = strstr(path->name, ",socket") != NULL;
	return KV_OK;
}

/* All adapters of the machine, or as many as are wanted. Those that cannot be used are included,
 * for their reasons. */
static int add_adapters(struct kv_server *server)
{
	struct rmr_device_entry entries[MAX_ENTRIES];
	size_t count = rmr_device_list(entries, MAX_ENTRIES);
	unsigned wanted = server->options.adapters, usable = 0;
	const char *reason = NULL;

	for (size_t i = 0; i < count && i < MAX_ENTRIES; i++) {
		struct server_path *path;

		if (strncmp(entries[i].name, "verbs", 5) != 0)
			continue;
		if (entries[i].usable && wanted && usable == wanted)
			continue;
		/* An adapter has no address that other hosts cannot reach. */
		if (entries[i].usable && server->is_guarded) {
			path = add_path(server, PATH_VERBS, entries[i].name);
			if (path)
				snprintf(path->reason, sizeof(path->reason),
					 "without a key this host alone is served; to open: "
					 "--key-file FILE, or -a ADDRESS");
			continue;
		}
		if (entries[i].usable) {
			usable++;
			if (server->path_count < SERVER_MAX_PATHS - 1 &&
			    add_adapter(server, entries[i].name, false) != KV_OK)
				return KV_INVALID;
			continue;
		}
		reason = entries[i].reason;
		path = add_path(server, PATH_VERBS, entries[i].name);
		if (path)
			snprintf(path->reason, sizeof(path->reason), "%s", entries[i].reason);
	}
	if (usable < wanted)
		return server_fail(KV_UNSUPPORTED,
				   "%u adapters are wanted, and %u can be used here%s%s", wanted,
				   usable, reason ? ": " : "", reason ? reason : "");
	return KV_OK;
}

static int add_verbs(struct kv_server *server, const struct kv_server_options *options)
{
	char name[sizeof(server->paths[0].name)];

	if (!options->device || !*options->device)
		return add_adapters(server);
	snprintf(name, sizeof(name), "%s%s",
		 strncmp(options->device, "verbs:", 6) == 0 ? "" : "verbs:", options->device);
	return add_adapter(server, name, true);
}

/* Whether a word belongs to the verbs adapter before it. */
static bool is_adapter_option(const char *word)
{
	const char *mark = strstr(word, "://");
	size_t length = mark ? (size_t)(mark - word) : strlen(word);

	return (length == 6 && strncmp(word, "socket", 6) == 0) ||
	       (length == 2 && strncmp(word, "cm", 2) == 0) || memchr(word, '=', length) != NULL;
}

static int bad_item(const char *item)
{
	return server_fail(KV_INVALID,
			   "cannot listen at '%s'; write shm, shm:NAME, tcp, tcp://HOST:PORT, "
			   "verbs, verbs:ADAPTER[,socket][://HOST:PORT] or ofi:PROVIDER, with "
			   "commas between them",
			   item);
}

/* shm and tcp: the device's name, and behind it an address of its own. */
static int add_simple(struct kv_server *server, const char *item, const char *plain)
{
	bool shm = strncmp(plain, "shm", 3) == 0;
	const char *address = plain + 3, *mark = shm ? ":" : "://";
	char name[sizeof(server->paths[0].name)];
	struct server_path *path;

	if (*address) {
		if (strncmp(address, mark, strlen(mark)) != 0 || !address[strlen(mark)])
			return bad_item(item);
		address += strlen(mark);
	}
	snprintf(name, sizeof(name), "%.*s", (int)(plain - item) + 3, item);
	path = add_path(server, shm ? PATH_SHM : PATH_TCP, name);
	if (!path || strlen(address) >= sizeof(path->address))
		return server_fail(KV_INVALID, "'%s': too many paths, or too long a name", item);
	snprintf(path->address, sizeof(path->address), "%s", address);
	path->named = true;
	return KV_OK;
}

/* By libfabric: the device's name, and perhaps an address of its own. */
static int add_ofi(struct kv_server *server, const char *item, const char *plain)
{
	const char *mark = strstr(plain, "://"), *address = mark ? mark + 3 : "";
	char name[sizeof(server->paths[0].name)];
	struct server_path *path;

	if ((plain[3] && plain[3] != ':') || strcmp(plain, "ofi:") == 0 || (mark && !*address) ||
	    mark == plain + 4)
		return bad_item(item);
	snprintf(name, sizeof(name), "%.*s", mark ? (int)(mark - item) : (int)sizeof(name) - 1,
		 item);
	path = add_path(server, PATH_OFI, name);
	if (!path || strlen(address) >= sizeof(path->address))
		return server_fail(KV_INVALID, "'%s': too many paths, or too long a name", item);
	snprintf(path->address, sizeof(path->address), "%s", address);
	path->named = true;
	return KV_OK;
}

static int add_item(struct kv_server *server, const struct kv_server_options *options,
		    const char *item)
{
	const char *plain = strncmp(item, "fault:", 6) == 0 ? item + 6 : item;

	if (strcmp(item, "verbs") == 0) {
		server->verbs_wanted = true;
		return add_verbs(server, options);
	}
	if (strncmp(plain, "verbs:", 6) == 0) {
		const char *mark = strstr(plain, "://");

		if (!plain[6] || mark == plain + 5 || mark == plain + 6 || (mark && !mark[3]))
			return bad_item(item);
		return add_adapter(server, item, true);
	}
	if (strncmp(plain, "shm", 3) == 0 || strncmp(plain, "tcp", 3) == 0)
		return add_simple(server, item, plain);
	if (strncmp(plain, "ofi", 3) == 0)
		return add_ofi(server, item, plain);
	return bad_item(item);
}

/* Takes the next item off *list, with its options, into item. False: there is none. */
static bool next_item(const char **list, char *item, size_t size)
{
	const char *end;

	*list += strspn(*list, ", ");
	if (!**list)
		return false;
	end = *list + strcspn(*list, ",");
	while (*end && strstr(*list, "verbs:") && strstr(*list, "verbs:") < end) {
		char word[SERVER_ADDRESS];
		size_t length = strcspn(end + 1, ",");

		snprintf(word, sizeof(word), "%.*s", (int)length, end + 1);
		if (!is_adapter_option(word))
			break;
		end += 1 + length;
	}
	snprintf(item, size, "%.*s", (int)(end - *list), *list);
	*list = end;
	return true;
}

/* The connection manager is the default, and has no name in the device's. */
static void drop_cm(char *item)
{
	char *found = strstr(item, ",cm");

	if (found && (found[3] == '\0' || found[3] == ',' || found[3] == ':'))
		memmove(found, found + 3, strlen(found + 3) + 1);
}

/* A list may name adapters itself: then it must name as many as are wanted. */
static int check_adapters(const struct kv_server *server)
{
	unsigned wanted = server->options.adapters, named = 0;

	for (unsigned i = 0; i < server->path_count; i++)
		named += server->paths[i].kind == PATH_VERBS && !server->paths[i].reason[0];
	if (wanted && named != wanted)
		return server_fail(KV_INVALID,
				   "%u adapters are wanted, and the list of where to listen has %u",
				   wanted, named);
	return KV_OK;
}

int listen_parse(struct kv_server *server, const struct kv_server_options *options)
{
	const char *list = options && options->listen ? options->listen : NULL;
	char item[SERVER_ADDRESS];
	struct server_path *path;
	int status = KV_OK;

	if (!list) {
		(void)add_path(server, PATH_SHM, "shm");
		path = add_path(server, PATH_TCP, "tcp");
		if (server->is_guarded) {
			/* If this port is taken, the other address is no substitute. */
			path->named = true;
			path = add_path(server, PATH_TCP, "tcp");
			snprintf(path->address, sizeof(path->address), "[::1]");
		}
		return add_verbs(server, &server->options);
	}
	while (status == KV_OK && next_item(&list, item, sizeof(item))) {
		drop_cm(item);
		status = add_item(server, &server->options, item);
	}
	if (status == KV_OK && server->path_count == 0)
		return server_fail(KV_INVALID, "the list of where to listen is empty");
	return status == KV_OK ? check_adapters(server) : status;
}
