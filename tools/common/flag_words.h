/*
 * The library's messages in the words of a command line. The library says what to do in its own
 * terms, which are fields of its options: "set key_file". Whoever sits at a prompt has flags.
 *
 *	fputs(flag_words(kv_client_error(client)), stderr);
 */
#ifndef TOOLS_COMMON_FLAG_WORDS_H
#define TOOLS_COMMON_FLAG_WORDS_H

/* The text with flags instead of fields, valid until the next call on this thread; the text itself
 * if it names none. NULL stays NULL. */
const char *flag_words(const char *text);

#endif
