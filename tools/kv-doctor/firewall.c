/*
 * The firewall: its rules, and a connection to ourselves.
 *
 * Rules are a language; this is no interpreter of it. What is looked for is what people do: an
 * input chain that drops what nobody accepts, without a rule for our port, or one that drops the
 * port by name. A connection to an address of this host goes through the rules as well, though not
 * through those that ask for a network card.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "doctor.h"
#include "fabric/inet.h"

#define GROUP	  "Network"
#define ROCE_PORT 4791

/* ------------------------------------------------------------------------------------------
 * Reading
 */

/* What a command writes; NULL when it is not there, or fails. */
static char *output_of(const char *command)
{
	FILE *pipe = popen(command, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t count;

	if (!pipe)
		return NULL;
	count = getdelim(&text, &room, '\0', pipe);
	if (pclose(pipe) != 0) {
		free(text);
		return NULL;
	}
	if (count >= 0)
		return text;
	free(text);
	return strdup("");
}

void firewall_gather(struct machine *machine)
{
	char tables[256];

	if (!machine->is_live) {
		machine->nft = file_load(machine->root, "/nft.rules");
		machine->iptables = file_load(machine->root, "/iptables.rules");
		return;
	}
	/* Only where the kernel has it in use: asking would load it. */
	if (module_presence(machine, "nf_tables") != MODULE_LOADABLE)
		machine->nft = output_of("PATH=$PATH:/usr/sbin:/sbin nft list ruleset 2>/dev/null");
	file_read("", "/proc/net/ip_tables_names", tables, sizeof(tables));
	if (strstr(tables, "filter"))
		machine->iptables = output_of("PATH=$PATH:/usr/sbin:/sbin iptables -S 2>/dev/null");
}

/* ------------------------------------------------------------------------------------------
 * Rules
 */

/* Whether a text such as "22", "{ 22, 80-90 }" or "22,80:90" begins with a set that has the port.
 * What is no number ends it. */
static bool set_has(const char *text, int port)
{
	text += strspn(text, " {");
	while (isdigit((unsigned char)*text)) {
		char *end;
		long low = strtol(text, &end, 10), high = low;

		if ((*end == '-' || *end == ':') && isdigit((unsigned char)end[1]))
			high = strtol(end + 1, &end, 10);
		if (port >= low && port <= high)
			return true;
		if (*end != ',')
			return false;
		text = end + strspn(end, ", ");
	}
	return false;
}

/* Copies the next line, without blanks around it, and goes on. False: there is none. */
static bool next_line(const char **text, char *line, size_t size)
{
	size_t length, skip;

	if (!**text)
		return false;
	length = strcspn(*text, "\n");
	skip = strspn(*text, " \t");
	if (skip > length)
		skip = length;
	snprintf(line, size, "%.*s", (int)(length - skip), *text + skip);
	*text += length;
	*text += **text == '\n';
	return true;
}

static bool ends_with(const char *line, const char *word)
{
	size_t length = strlen(line), short_length = strlen(word);

	return length >= short_length && strcmp(line + length - short_length, word) == 0;
}

/* A rule that holds for every packet. */
static bool is_unconditional(const char *line)
{
	int length = 0;

	(void)sscanf(line, "counter packets %*u bytes %*u %n", &length);
	line += length;
	return strcmp(line, "accept") == 0 || strcmp(line, "drop") == 0 ||
	       strncmp(line, "reject", 6) == 0;
}

struct nft_state {
	char table[128], chain[64]; /* "inet filter", "input" */
	bool is_input;
	bool policy_drops, drops, drops_port, accepts_port;
	char at[200]; /* table and chain that drop */
};

static void nft_rule(struct nft_state *state, const char *line, const char *protocol, int port)
{
	const char *dport = strstr(line, "dport ");
	bool drops = ends_with(line, "drop") || strstr(line, "reject");

	if (dport && set_has(dport + 6, port) &&
	    (strstr(line, protocol) || strstr(line, "th dport"))) {
		state->accepts_port |= ends_with(line, "accept");
		state->drops_port |= drops && state->is_input && !state->accepts_port;
	} else if (state->is_input && is_unconditional(line)) {
		if (drops)
			state->drops = true;
		else if (!state->drops)
			state->accepts_port = true;
	}
	if (state->is_input && (state->drops || state->drops_port) && !state->at[0])
		snprintf(state->at, sizeof(state->at), "%s %s", state->table, state->chain);
}

bool nft_blocks(const char *rules, const char *protocol, int port, char *fix, size_t size)
{
	struct nft_state state = {0};
	char line[512];

	while (rules && next_line(&rules, line, sizeof(line))) {
		if (sscanf(line, "table %127[^{]", state.table) == 1) {
			size_t length = strlen(state.table);

			if (length && state.table[length - 1] == ' ')
				state.table[length - 1] = '\0';
		} else if (sscanf(line, "chain %63s", state.chain) == 1) {
			state.is_input = false;
		} else if (strstr(line, "hook input")) {
			state.is_input = true;
			if (strstr(line, "policy drop")) {
				state.policy_drops = true;
				snprintf(state.at, sizeof(state.at), "%s %s", state.table,
					 state.chain);
			}
		} else {
			nft_rule(&state, line, protocol, port);
		}
	}
	state.drops |= state.policy_drops; /* which comes last */
	if (!state.drops_port && (!state.drops || state.accepts_port))
		return false;
	snprintf(fix, size, "nft insert rule %s %s dport %d accept", state.at, protocol, port);
	return true;
}

bool iptables_blocks(const char *rules, const char *protocol, int port, char *fix, size_t size)
{
	bool policy_drops = false, drops = false, drops_port = false, accepts_port = false;
	char line[512], wanted[16];

	snprintf(wanted, sizeof(wanted), "-p %s ", protocol);
	while (rules && next_line(&rules, line, sizeof(line))) {
		const char *dport = strstr(line, "--dport"),
			   *set = dport ? strchr(dport, ' ') : NULL;
		bool denies = strstr(line, "-j DROP") || strstr(line, "-j REJECT");

		if (strcmp(line, "-P INPUT DROP") == 0)
			policy_drops = true;
		else if (set && strstr(line, wanted) && set_has(set, port)) {
			accepts_port |= strstr(line, "-j ACCEPT") != NULL;
			drops_port |= denies && !accepts_port;
		} else if (strcmp(line, "-A INPUT -j ACCEPT") == 0)
			accepts_port |= !drops;
		else if (strncmp(line, "-A INPUT -j ", 12) == 0 && denies)
			drops = true;
	}
	if (!drops_port && ((!drops && !policy_drops) || accepts_port))
		return false;
	snprintf(fix, size, "iptables -I INPUT -p %s --dport %d -j ACCEPT", protocol, port);
	return true;
}

static void check_rules(const struct machine *machine, const char *protocol, int port,
			struct report *report)
{
	char name[48], fix[320];
	struct finding *finding;

	snprintf(name, sizeof(name), "firewall, %s %d", protocol, port);
	if (!machine->nft && !machine->iptables) {
		report_add(report, GROUP, name, VERDICT_NONE,
			   machine->user == 0
				   ? "no rules: this kernel has none, or nft is not installed"
				   : "only root can read the rules");
		return;
	}
	if (!nft_blocks(machine->nft, protocol, port, fix, sizeof(fix)) &&
	    !iptables_blocks(machine->iptables, protocol, port, fix, sizeof(fix))) {
		report_add(report, GROUP, name, VERDICT_OK, "no rule keeps it out");
		return;
	}
	finding = report_add(report, GROUP, name, VERDICT_WARN,
			     "the rules keep other hosts from reaching it");
	report_fix(finding, "%s", fix);
}

void check_firewall(const struct machine *machine, int port, struct report *report)
{
	bool soft = false;

	check_rules(machine, "tcp", port, report);
	/* Hardware takes its packets before the kernel sees them. */
	for (int i = 0; i < machine->adapter_count; i++)
		soft |= machine->adapters[i].driver == driver_find("rdma_rxe");
	if (soft)
		check_rules(machine, "udp", ROCE_PORT, report);
}

/* ------------------------------------------------------------------------------------------
 * A connection
 */

/* An address of this host that is not loopback, with the port. False: there is none. */
static bool own_address(int port, struct sockaddr_in *address)
{
	struct ifaddrs *list, *at;
	bool found = false;

	if (getifaddrs(&list) != 0)
		return false;
	for (at = list; at && !found; at = at->ifa_next) {
		if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
		    (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP))
			continue;
		memcpy(address, at->ifa_addr, sizeof(*address));
		address->sin_port = htons((uint16_t)port);
		found = true;
	}
	freeifaddrs(list);
	return found;
}

/* 0, or an errno. */
static int connect_within(const struct sockaddr_in *address, int timeout_ms)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd wait = {.fd = fd, .events = POLLOUT};
	int error = 0;
	socklen_t length = sizeof(error);

	if (fd < 0)
		return errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
		error = errno;
	if (error == EINPROGRESS) {
		if (poll(&wait, 1, timeout_ms) != 1)
			error = ETIMEDOUT;
		else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
			error = errno;
	}
	close(fd);
	return error;
}

void try_own_port(int port, int timeout_ms, struct report *report)
{
	struct sockaddr_in address;
	struct finding *finding;
	char name[48], text[64];
	int error = 0, one = 1, fd;

	snprintf(name, sizeof(name), "connection to %d", port);
	if (!own_address(port, &address)) {
		report_add(report, GROUP, name, VERDICT_NONE,
			   "this host has no address but loopback's");
		return;
	}
	inet_format((struct sockaddr *)&address, sizeof(address), text, sizeof(text));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		    listen(fd, 1) != 0)
			error = errno;
	}
	/* In use: then somebody listens there already. */
	if (error == EACCES || error == EPERM) {
		report_add(report, GROUP, name, VERDICT_NONE, "this user may not listen at port %d",
			   port);
	} else {
		error = connect_within(&address, timeout_ms);
		if (error == 0) {
			report_add(report, GROUP, name, VERDICT_OK,
				   "this host reaches itself at %s", text);
		} else {
			finding = report_add(report, GROUP, name, VERDICT_WARN,
					     "this host does not reach itself at %s: %s", text,
					     strerror(error));
			report_fix(finding, "nft list ruleset # a rule, or a server at another "
					    "address of this host, has the port");
		}
	}
	if (fd >= 0)
		close(fd);
}
