/*
 * Configuration files: the options of a program, by their long names.
 *
 *	# where to listen
 *	address = 10.0.0.5
 *	memory = 64GiB		# blanks around names and values do not count
 *	hugepages = yes
 *	key-file = "/etc/remora/the key"
 *
 * A value ends at the end of the line, or before a blank and a #. In double quotes it may hold
 * anything, with \" and \\ for these two; in single quotes anything but a single quote. An option
 * may be set once in a file. Every value goes through options_set(), so that a file and a command
 * line understand and refuse the same.
 *
 * To let the command line win, a program parses it, then the file that it named, and then the
 * command line again. Used at start-up, by one thread.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include "base/options.h"

#define CONFIG_SIZE_MAX (1u << 20)

/* Reads the file at `path` into *text, which is allocated, and parses it. The options' strings
 * point into it from now on: free it when they are not used any more. `excluded`, ended by NULL,
 * are options that make no sense in a file. False: the message says what, with file and line;
 * options of the lines before are set. */
bool config_read(const struct options_program *program, const char *const *excluded,
		 const char *path, char **text, char message[OPTIONS_MESSAGE_SIZE]);

/* The same for `length` bytes of text with a zero behind them, which are changed by it; `path` only
 * stands in the message. */
bool config_parse(const struct options_program *program, const char *const *excluded,
		  const char *path, char *text, size_t length, char message[OPTIONS_MESSAGE_SIZE]);

/* Writes what all options but the excluded ones hold now, as a file that config_read() takes; an
 * empty string as a comment. */
void config_write(const struct options_program *program, const char *const *excluded, FILE *file);

#endif
