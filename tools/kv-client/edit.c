/*
 * The line of the prompt, by libedit: editing keys, history, completion by Tab, and the words that
 * a command takes as a hint at the right once its name is typed.
 *
 * While a line is edited the terminal sends Ctrl-C as a character, which clears the line: no signal
 * can tear libedit out of its work. Between lines the terminal is as we found it, and Ctrl-C is the
 * signal that commands look for. A signal that ends us finds the terminal's old settings here.
 */
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "client.h"

#define HISTORY_LINES 1000
#define COLUMN_GAP    2

struct editor {
	struct session *session;
	EditLine *edit;
	History *history;
	char *line;
};

static struct termios found;

static void restore_terminal(void)
{
	tcsetattr(STDIN_FILENO, TCSADRAIN, &found);
}

/* ------------------------------------------------------------------------------------------
 * What libedit calls
 */

static char *make_prompt(EditLine *edit)
{
	struct editor *editor;

	el_get(edit, EL_CLIENTDATA, &editor);
	return prompt_text(editor->session);
}

static char *make_hint(EditLine *edit)
{
	static char hint[128];
	const LineInfo *info = el_line(edit);
	const char *text = complete_hint(info->buffer, (size_t)(info->lastchar - info->buffer));

	snprintf(hint, sizeof(hint), "%s", text ? text : "");
	return hint;
}

/* A blank may end a command's name: then the hint is drawn, which libedit does not do for each
 * character. */
static unsigned char on_blank(EditLine *edit, int key)
{
	(void)key;
	return el_insertstr(edit, " ") ? CC_ERROR : CC_REFRESH;
}

static unsigned char on_cancel(EditLine *edit, int key)
{
	const LineInfo *info = el_line(edit);
	int length = (int)(info->lastchar - info->buffer);

	(void)key;
	el_cursor(edit, (int)(info->lastchar - info->cursor));
	el_deletestr(edit, length);
	fputs("^C\r\n", stdout);
	fflush(stdout);
	return CC_REDISPLAY;
}

/* ------------------------------------------------------------------------------------------
 * Completion
 */

static size_t common_length(const struct completions *found_words)
{
	size_t common = strlen(found_words->words[0]);

	for (size_t i = 1; i < found_words->count; i++) {
		size_t same = 0;

		while (same < common && found_words->words[i][same] == found_words->words[0][same])
			same++;
		common = same;
	}
	return common;
}

/* Below the line, in columns. */
static void list_words(EditLine *edit, const struct completions *found_words)
{
	size_t widest = 0, columns;
	int width = 80;

	el_get(edit, EL_GETTC, "co", &width, (void *)0);
	for (size_t i = 0; i < found_words->count; i++) {
		size_t length = strlen(found_words->words[i]);

		widest = length > widest ? length : widest;
	}
	columns = (size_t)width / (widest + COLUMN_GAP);
	columns = columns ? columns : 1;
	for (size_t i = 0; i < found_words->count; i++) {
		fputs(i % columns ? "" : "\r\n", stdout);
		printf("%-*s", (int)widest + COLUMN_GAP, found_words->words[i]);
	}
	fputs("\r\n", stdout);
	fflush(stdout);
}

static unsigned char on_tab(EditLine *edit, int key)
{
	const LineInfo *info = el_line(edit);
	struct completions found_words = {0};
	unsigned char answer = CC_REFRESH;
	struct editor *editor;
	size_t common;

	(void)key;
	el_get(edit, EL_CLIENTDATA, &editor);
	complete(editor->session, info->buffer, (size_t)(info->cursor - info->buffer),
		 &found_words);
	if (!found_words.count)
		return CC_REFRESH_BEEP;
	common = common_length(&found_words);
	if (common > found_words.typed) {
		char *more = strndup(found_words.words[0] + found_words.typed,
				     common - found_words.typed);

		if (!more || el_insertstr(edit, more))
			answer = CC_ERROR;
		free(more);
	} else if (found_words.count > 1) {
		list_words(edit, &found_words);
		answer = CC_REDISPLAY;
	}
	/* Another word may follow; what ends with a slash goes on. */
	if (found_words.count == 1 && common && found_words.words[0][common - 1] != '/')
		el_insertstr(edit, " ");
	completions_free(&found_words);
	return answer;
}

/* ------------------------------------------------------------------------------------------
 * The editor
 */

static void remember(void *context, const char *line)
{
	struct editor *editor = context;
	HistEvent event;

	if (*line && *line != ' ')
		history(editor->history, &event, H_ENTER, line);
}

static void set_up(struct editor *editor)
{
	EditLine *edit = editor->edit;
	HistEvent event;

	history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
	history(editor->history, &event, H_SETUNIQUE, 1);
	history_load(remember, editor);
	el_set(edit, EL_CLIENTDATA, editor);
	el_set(edit, EL_PROMPT, make_prompt);
	el_set(edit, EL_RPROMPT, make_hint);
	el_set(edit, EL_EDITOR, "emacs");
	el_set(edit, EL_HIST, history, editor->history);
	/* Wide, for of the others it makes copies that it never frees. */
	el_wset(edit, EL_ADDFN, L"kv-complete", L"complete the word", on_tab);
	el_wset(edit, EL_ADDFN, L"kv-blank", L"insert a blank", on_blank);
	el_wset(edit, EL_ADDFN, L"kv-cancel", L"clear the line", on_cancel);
	el_set(edit, EL_BIND, "^I", "kv-complete", NULL);
	el_set(edit, EL_BIND, " ", "kv-blank", NULL);
	el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
	/* The user's ~/.editrc, and after it what must be so. */
	el_source(edit, NULL);
	el_set(edit, EL_SETTY, "-d", "-isig", NULL);
	el_set(edit, EL_BIND, "^C", "kv-cancel", NULL);
}

struct editor *editor_open(struct session *session)
{
	const char *terminal = getenv("TERM");
	struct editor *editor;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !terminal ||
	    strcmp(terminal, "dumb") == 0 || tcgetattr(STDIN_FILENO, &found))
		return NULL;
	editor = calloc(1, sizeof(*editor));
	if (!editor)
		return NULL;
	setlocale(LC_CTYPE, "");
	editor->session = session;
	editor->edit = el_init("kv-client", stdin, stdout, stderr);
	editor->history = history_init();
	if (!editor->edit || !editor->history) {
		editor_close(editor);
		return NULL;
	}
	set_up(editor);
	return editor;
}

char *editor_line(struct editor *editor)
{
	const char *line;
	int length = 0;

	free(editor->line);
	editor->line = NULL;
	interrupt_undo(restore_terminal);
	do {
		/* A signal that somebody sent, not the key, is no reason to end. */
		interrupt_hold();
		el_resize(editor->edit);
		/* Before the prompt is seen: what is typed early must not reach the terminal as it
		 * was. */
		el_set(editor->edit, EL_PREP_TERM, 1);
		line = el_gets(editor->edit, &length);
	} while (!line && interrupt_came());
	interrupt_undo(NULL);
	if (!line || length <= 0)
		return NULL;
	editor->line = strdup(line);
	if (editor->line) {
		editor->line[strcspn(editor->line, "\n")] = '\0';
		remember(editor, editor->line);
		history_append(editor->line);
	}
	return editor->line;
}

void editor_close(struct editor *editor)
{
	if (!editor)
		return;
	if (editor->edit)
		el_end(editor->edit);
	if (editor->history)
		history_end(editor->history);
	free(editor->line);
	free(editor);
}
