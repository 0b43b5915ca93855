/*
 * kv-doctor: what its files share.
 *
 *	main.c		what is looked at, in which order, and the exit code
 *	options.c	the command line
 *	files.c		files of the machine, or of another one's below --sysroot
 *	gather.c	what a machine is, from files: modules, libraries, memory, directories
 *	gather_rdma.c	its adapters, ports, GIDs, and the cards that could be adapters
 *	drivers.c	the drivers that there are, with their libraries and packages
 *	firewall.c	its rules, read by nft and iptables; a connection to ourselves; what follows
 *	checks_kernel.c	modules, libraries, permissions
 *	checks_rdma.c	adapters: ports, GIDs, MTU, NUMA; and whether verbs can work with them
 *	checks_memory.c	locked memory, huge pages, where sockets lie
 *	query_verbs.c	what only an open adapter tells; query_none.c in a build without verbs
 *	loopback.c	a real transfer by each provider, from this process to itself
 *	remote.c	--server: the other end
 *	paths.c		which path works, and which one clients would take
 *	report.c	findings, for people and as JSON
 *
 * First the machine is gathered, then checks turn the description into findings: they are pure
 * functions, so that a tree of files is enough to test them. Transfers and the other end are
 * tried after that. One thread, but for the far side of a transfer.
 */
#ifndef KV_DOCTOR_DOCTOR_H
#define KV_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------
 * Paths, and the command line, options.c
 */

enum path {
	PATH_AUTO, /* the best that works */
	PATH_SHM,
	PATH_TCP,
	PATH_VERBS,  /* by RDMA CM */
	PATH_SOCKET, /* verbs, meeting by a socket */
	PATH_OFI,    /* by libfabric */
	PATH_COUNT,
};
extern const char *const path_names[]; /* ended by NULL */

struct config {
	enum path want;
	const char *server;   /* NULL: this machine alone */
	const char *key_file; /* NULL: the environment's, or none */
	const char *root;     /* "" or the directory in which files are looked for */
	int port;
	int timeout_ms;
	bool write;
	bool json;
};

/* Exits on a wrong command line. */
void doctor_parse(int argc, char **argv, struct config *config);

/* ------------------------------------------------------------------------------------------
 * Findings, report.c
 */

enum verdict {
	VERDICT_OK,
	VERDICT_WARN,
	VERDICT_FAIL,
	VERDICT_NONE, /* not applicable */
};

struct finding {
	const char *group;
	char check[48];
	enum verdict verdict;
	char text[640];
	char fix[400];
};

struct report {
	struct finding *findings;
	size_t count, room;
};

/* Adds a finding, with one sentence that has no full stop. Ends the program when there is no
 * memory. The result is valid until the next one is added. */
__attribute__((format(printf, 5, 6))) struct finding *report_add(struct report *report,
								 const char *group,
								 const char *check,
								 enum verdict verdict,
								 const char *format, ...);
/* The command that puts it right. */
__attribute__((format(printf, 2, 3))) void report_fix(struct finding *finding, const char *format,
						      ...);
void report_free(struct report *report);

/* For people, in lines of at most `width` characters where words permit. */
void report_print(const struct report *report, FILE *file, int width, bool colours);
/* One object a finding. */
void report_print_json(const struct report *report, FILE *file);

/* ------------------------------------------------------------------------------------------
 * Files, files.c. Names begin with a slash; `root` stands before them.
 */

#define FILE_NAME 64
#define FILE_PATH 384

/* Puts a name together. */
__attribute__((format(printf, 2, 3))) void file_name(char name[FILE_PATH], const char *format, ...);
/* The content, cut at size - 1 bytes, without the last newline. False, and "": not to be read. */
bool file_read(const char *root, const char *name, char *to, size_t size);
/* The same, allocated and whole; NULL: not to be read. */
char *file_load(const char *root, const char *name);
bool file_exists(const char *root, const char *name);
bool file_stat(const char *root, const char *name, struct stat *stat);
/* The last part of what a link points to; "" when it is none. */
void file_link(const char *root, const char *name, char *to, size_t size);
/* The names in a directory, in the order people count. Returns how many; longer ones than FILE_NAME
 * are left out. */
int file_list(const char *root, const char *name, char (*names)[FILE_NAME], int max);
/* Whether a file fits a pattern of glob(7). */
bool file_matches(const char *root, const char *pattern);

/* ------------------------------------------------------------------------------------------
 * The machine, gather.c and gather_rdma.c
 */

enum presence {
	MODULE_ABSENT,	 /* neither in the kernel nor to be loaded */
	MODULE_LOADABLE, /* there is a file */
	MODULE_UNKNOWN,	 /* not in the kernel; what could be loaded is not known */
	MODULE_LOADED,
	MODULE_BUILT_IN,
};

enum access {
	ACCESS_MISSING,
	ACCESS_DENIED,
	ACCESS_GRANTED,
};

/* A driver of RDMA adapters, drivers.c. */
struct driver {
	const char *module;  /* "mlx5_ib" */
	const char *network; /* what drives the card itself: "mlx5_core"; "" when nothing does */
	const char *library; /* "mlx5", as in libmlx5-rdmav34.so */
	const char *fault;   /* why our verbs cannot use it; NULL when they can */
	unsigned vendor;     /* a card of this PCI vendor is an adapter; 0: the driver tells */
	unsigned device_low, device_high;
};
extern const struct driver drivers[]; /* the last one has no module */
const struct driver *driver_find(const char *module);
const struct driver *driver_of_network(const char *network);

struct gid {
	int index;
	uint8_t raw[16];
	bool is_v2; /* RoCE v2 */
	char netdev[16];
};

#define MAX_GIDS     64
#define MAX_PORTS    4
#define MAX_ADAPTERS 16
#define MAX_CARDS    16
#define MAX_NODES    16

struct port {
	int number;
	char state[24];	     /* "ACTIVE" */
	char phys_state[24]; /* "LinkUp" */
	char link_layer[16]; /* "Ethernet", "InfiniBand", "Unknown" */
	char rate[40];
	char netdev[16]; /* "": none is known */
	int netdev_mtu;	 /* 0: not known */
	int active_mtu;	 /* of the port; 0: not known */
	int max_mtu;
	struct gid gids[MAX_GIDS];
	int gid_count;
};

struct adapter {
	char name[FILE_NAME];
	const struct driver *driver; /* NULL: none that we know */
	int node_type;		     /* 1: channel adapter, 4: iWARP; 0: not known */
	int numa_node;		     /* -1: none */
	char uverbs[FILE_NAME];	     /* its file in /dev/infiniband; "": none */
	enum access access;	     /* to that file */
	bool has_library;
	struct port ports[MAX_PORTS];
	int port_count;
};

/* A network card on which a driver of the table would make an adapter. */
struct card {
	char slot[FILE_NAME];
	const struct driver *driver;
};

struct machine {
	const char *root;
	bool is_live; /* this one, and not files of another */
	char kernel[128];
	bool has_class, has_files;	    /* /sys/class/infiniband, /dev/infiniband */
	char *loaded, *built_in, *loadable; /* /proc/modules, modules.builtin, modules.dep */
	bool has_libibverbs, has_librdmacm, has_libfabric;
	enum access cm; /* /dev/infiniband/rdma_cm */
	struct adapter adapters[MAX_ADAPTERS];
	int adapter_count;
	struct card cards[MAX_CARDS];
	int card_count;

	/* Of this process, /proc/self */
	uint64_t memlock; /* bytes; UINT64_MAX: no limit */
	uint64_t capabilities;
	unsigned user, group;
	char groups[512];  /* " 4 20 27 " */
	char memories[64]; /* nodes of which it may have memory: "0-1" */

	uint64_t huge_total, huge_free; /* pages of 2 MiB */
	bool has_huge;
	char transparent[16], transparent_shared[16]; /* "madvise", "never" ... ; "": not known */

	int nodes[MAX_NODES]; /* the numbers of NUMA nodes */
	int node_count;
	int distances[MAX_NODES][MAX_NODES]; /* between nodes[i] and nodes[k]; 0: not known */

	char shm_directory[256];
	bool has_shm_directory;
	unsigned shm_stale; /* sockets there that killed servers left */
	char shm_stale_first[128];
	struct stat shm_stat;

	char *nft, *iptables; /* rules as text; NULL: not to be read */
};

/* Reads all there is. machine_free it. */
void machine_gather(struct machine *machine, const char *root);
void machine_free(struct machine *machine);
/* Parts of it: adapters, and the rules of the firewall. */
void gather_rdma(struct machine *machine);
void firewall_gather(struct machine *machine);

enum presence module_presence(const struct machine *machine, const char *name);
/* Whether this process may read and write a file. */
enum access machine_access(const struct machine *machine, const char *name);
/* Which of a port's GIDs goes with an address of nobody else; NULL: there is none that can be. */
const struct gid *port_gid(const struct port *port);
bool port_is_active(const struct port *port);
/* "10.0.0.1" */
void gid_format(const struct gid *gid, char *to, size_t size);

/* query_verbs.c: fills active_mtu and max_mtu of the ports. */
void query_ports(struct adapter *adapter);

/* ------------------------------------------------------------------------------------------
 * Checks
 */

/* Whether somebody who wants this path, on this machine, cares about RDMA at all. */
bool rdma_matters(const struct machine *machine, enum path want);

void check_modules(const struct machine *machine, enum path want, struct report *report);
void check_libraries(const struct machine *machine, enum path want, struct report *report);
void check_permissions(const struct machine *machine, enum path want, struct report *report);
void check_adapters(const struct machine *machine, enum path want, struct report *report);
void check_memory(const struct machine *machine, enum path want, struct report *report);
void check_firewall(const struct machine *machine, int port, struct report *report);

/* Locked memory without which verbs cannot even begin, in bytes. */
#define MEMLOCK_LEAST ((uint64_t)8 << 20)
#define MEMLOCK_ROOM  ((uint64_t)1 << 30) /* less is too little for most servers */
bool memlock_is_unlimited(const struct machine *machine);

/* Whether files speak against using the adapter by verbs: then why, in `reason`. */
bool adapter_is_broken(const struct machine *machine, const struct adapter *adapter, char *reason,
		       size_t size);

/* Connects to a port at an address of this host that is not loopback: firewall.c. */
void try_own_port(int port, int timeout_ms, struct report *report);
/* What the rules say of a port; pure. False: they let it pass. */
bool nft_blocks(const char *rules, const char *protocol, int port, char *fix, size_t size);
bool iptables_blocks(const char *rules, const char *protocol, int port, char *fix, size_t size);

/* ------------------------------------------------------------------------------------------
 * What works, paths.c
 */

struct outcome {
	enum path path;
	char device[64];
	bool works;
	char reason[512];
};

#define MAX_OUTCOMES 40

struct outcomes {
	struct outcome list[MAX_OUTCOMES];
	int count;
};

/* Of a reason, the clause that says why; what follows "; " is what to do about it. */
int clause_length(const char *reason);

struct outcome *outcome_add(struct outcomes *outcomes, enum path path, const char *device);
/* From files alone, where nothing can be tried. */
void outcomes_from_files(const struct machine *machine, struct outcomes *outcomes);
/* Whether the wanted path works; adds the sentence that says so, and what clients would take. */
bool outcomes_judge(const struct outcomes *outcomes, const struct config *config,
		    struct report *report);

/* A transfer by every device of this machine, with its finding: loopback.c. */
void loopback_all(int timeout_ms, enum path want, struct report *report, struct outcomes *outcomes);

/* The server: remote.c. The outcomes are the server's paths; `chosen` is what a client says of the
 * path that it took by itself, "" if it found none. */
void remote_check(const struct config *config, struct report *report, struct outcomes *outcomes,
		  char *chosen, size_t size);
/* The same for the server: its paths, and what remote_check found. */
bool outcomes_judge_server(const struct outcomes *outcomes, const struct config *config,
			   const char *chosen, struct report *report);

#endif
