/*
 * The command line of kv-server. It fills in the options of server.h; what a flag does not say
 * stays 0, which is the library's default there.
 */
#ifndef KV_SERVER_OPTIONS_H
#define KV_SERVER_OPTIONS_H

#include <remora/server.h>

/* Exits on a wrong command line, and after --help and --version. The strings are argv's. */
void server_parse(int argc, char **argv, kv_server_options_t *options);

#endif
