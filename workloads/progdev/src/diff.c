/*
 * What differs between two texts, by the algorithm of Myers: the shortest list of edits, found by
 * going as far as possible with one edit, then with two, and so on. A patch is printed in the
 * unified format, and can be applied.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define LINES_MAX 100000

struct line {
    const char *start;
    size_t length;
    uint32_t hash;
};

struct lines {
    struct line *list;
    size_t count;
};

/* Splits a text into lines without their ends. */
static bool split(const char *text, struct lines *lines)
{
    size_t capacity = 1;

    for (const char *at = text; *at != '\0'; at++)
        capacity += *at == '\n';
    lines->count = 0;
    lines->list = capacity > LINES_MAX ? NULL : calloc(capacity, sizeof(*lines->list));
    if (lines->list == NULL)
        return false;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        struct line *line = &lines->list[lines->count++];

        line->start = text;
        line->length = length;
        line->hash = crc32_of(text, length);
        text += length + (text[length] == '\n');
    }
    return true;
}

static bool is_same(const struct line *one, const struct line *other)
{
    return one->hash == other->hash && one->length == other->length &&
           memcmp(one->start, other->start, one->length) == 0;
}

static bool add_edit(struct edit_list *edits, enum edit_kind kind, size_t old_line,
                     size_t new_line)
{
    struct edit edit = { kind, old_line, new_line };

    if (edits->count == edits->capacity) {
        size_t capacity = edits->capacity == 0 ? 64 : edits->capacity * 2;
        struct edit *list = realloc(edits->edits, capacity * sizeof(*list));

        if (list == NULL)
            return false;
        edits->edits = list;
        edits->capacity = capacity;
    }
    edits->edits[edits->count++] = edit;
    return true;
}

static void reverse(struct edit_list *edits)
{
    for (size_t low = 0, high = edits->count; low + 1 < high; low++) {
        struct edit kept = edits->edits[low];

        high--;
        edits->edits[low] = edits->edits[high];
        edits->edits[high] = kept;
    }
}

/* How far each diagonal was reached, for each number of edits so far. */
struct trace {
    size_t **rounds;
    size_t count;
    size_t width;
    size_t middle;
};

static void trace_free(struct trace *trace)
{
    for (size_t round = 0; round < trace->count; round++)
        free(trace->rounds[round]);
    free(trace->rounds);
}

/* Whether the way to a diagonal comes from the one above it: by an insertion. */
static bool comes_from_above(const size_t *reached, size_t diagonal, size_t low, size_t high)
{
    if (diagonal == low)
        return true;
    return diagonal != high && reached[diagonal - 1] < reached[diagonal + 1];
}

/* Goes on until both texts are at their ends; false if there is no memory. */
static bool explore(const struct lines *old_lines, const struct lines *new_lines,
                    struct trace *trace)
{
    size_t edits_max = old_lines->count + new_lines->count;
    size_t *reached;

    trace->middle = edits_max + 1;
    trace->width = 2 * edits_max + 3;
    trace->count = 0;
    trace->rounds = calloc(edits_max + 1, sizeof(*trace->rounds));
    reached = calloc(trace->width, sizeof(*reached));
    if (trace->rounds == NULL || reached == NULL) {
        free(reached);
        return false;
    }
    for (size_t edits = 0; edits <= edits_max; edits++) {
        size_t low = trace->middle - edits, high = trace->middle + edits;
        size_t *kept = malloc(trace->width * sizeof(*kept));

        if (kept == NULL)
            break;
        memcpy(kept, reached, trace->width * sizeof(*kept));
        trace->rounds[trace->count++] = kept;
        for (size_t diagonal = low; diagonal <= high; diagonal += 2) {
            size_t old_line = comes_from_above(reached, diagonal, low, high)
                                  ? reached[diagonal + 1]
                                  : reached[diagonal - 1] + 1;
            size_t new_line = old_line + trace->middle - diagonal;

            while (old_line < old_lines->count && new_line < new_lines->count &&
                   is_same(&old_lines->list[old_line], &new_lines->list[new_line])) {
                old_line++;
                new_line++;
            }
            reached[diagonal] = old_line;
            if (old_line >= old_lines->count && new_line >= new_lines->count) {
                free(reached);
                return true;
            }
        }
    }
    free(reached);
    return false;
}

/* Follows the way back from the ends; the edits come out in reverse. */
static bool follow_back(const struct lines *old_lines, const struct lines *new_lines,
                        const struct trace *trace, struct edit_list *edits)
{
    size_t old_line = old_lines->count, new_line = new_lines->count;
    bool is_fine = true;

    for (size_t round = trace->count; is_fine && round-- > 0;) {
        const size_t *reached = trace->rounds[round];
        size_t diagonal = trace->middle + old_line - new_line;
        size_t low = trace->middle - round, high = trace->middle + round;
        bool inserts = comes_from_above(reached, diagonal, low, high);
        size_t from = inserts ? diagonal + 1 : diagonal - 1;
        size_t old_start = round == 0 ? 0 : reached[from];
        size_t new_start = round == 0 ? 0 : old_start + trace->middle - from;
        size_t moved_old = old_start + (round > 0 && !inserts);
        size_t moved_new = new_start + (round > 0 && inserts);

        while (is_fine && old_line > moved_old && new_line > moved_new)
            is_fine = add_edit(edits, EDIT_KEEP, --old_line, --new_line);
        if (round == 0 || !is_fine)
            break;
        is_fine = add_edit(edits, inserts ? EDIT_INSERT : EDIT_REMOVE, old_start, new_start);
        old_line = old_start;
        new_line = new_start;
    }
    reverse(edits);
    return is_fine;
}

static bool diff_of(const struct lines *old_lines, const struct lines *new_lines,
                    struct edit_list *edits)
{
    struct trace trace;
    bool is_fine;

    memset(edits, 0, sizeof(*edits));
    is_fine = explore(old_lines, new_lines, &trace) &&
              follow_back(old_lines, new_lines, &trace, edits);
    trace_free(&trace);
    return is_fine;
}

bool diff_lines(const char *old_text, const char *new_text, struct edit_list *edits)
{
    struct lines old_lines = { NULL, 0 }, new_lines = { NULL, 0 };
    bool is_fine = split(old_text, &old_lines) && split(new_text, &new_lines) &&
                   diff_of(&old_lines, &new_lines, edits);

    free(old_lines.list);
    free(new_lines.list);
    return is_fine;
}

void diff_free(struct edit_list *edits)
{
    free(edits->edits);
    memset(edits, 0, sizeof(*edits));
}

/* Finds the next range of edits with so many kept lines around it. */
static bool next_hunk(const struct edit_list *edits, size_t context, size_t *start, size_t *end)
{
    size_t change = *end, kept = 0;

    while (change < edits->count && edits->edits[change].kind == EDIT_KEEP)
        change++;
    if (change == edits->count)
        return false;
    *start = change - *end > context ? change - context : *end;
    for (*end = change; *end < edits->count && kept <= 2 * context; ++*end)
        kept = edits->edits[*end].kind == EDIT_KEEP ? kept + 1 : 0;
    if (kept > context)
        *end -= kept - context;
    return true;
}

static void print_hunk(const struct edit_list *edits, size_t start, size_t end,
                       const struct lines *old_lines, const struct lines *new_lines,
                       struct text *out)
{
    size_t old_count = 0, new_count = 0;

    for (size_t edit = start; edit < end; edit++) {
        old_count += edits->edits[edit].kind != EDIT_INSERT;
        new_count += edits->edits[edit].kind != EDIT_REMOVE;
    }
    text_add_format(out, "@@ -%zu,%zu +%zu,%zu @@\n",
                    edits->edits[start].old_line + (old_count > 0), old_count,
                    edits->edits[start].new_line + (new_count > 0), new_count);
    for (size_t edit = start; edit < end; edit++) {
        const struct edit *one = &edits->edits[edit];
        const struct line *line = one->kind == EDIT_INSERT ? &new_lines->list[one->new_line]
                                                           : &old_lines->list[one->old_line];

        text_add_char(out, " -+"[one->kind]);
        text_add(out, line->start, line->length);
        text_add_char(out, '\n');
    }
}

/* Prints a patch in the unified format, without the names of files. */
bool diff_print(const char *old_text, const char *new_text, size_t context, struct text *out)
{
    struct lines old_lines = { NULL, 0 }, new_lines = { NULL, 0 };
    struct edit_list edits = { NULL, 0, 0 };
    size_t start = 0, end = 0;
    bool is_fine = split(old_text, &old_lines) && split(new_text, &new_lines) &&
                   diff_of(&old_lines, &new_lines, &edits);

    while (is_fine && next_hunk(&edits, context, &start, &end))
        print_hunk(&edits, start, end, &old_lines, &new_lines, out);
    diff_free(&edits);
    free(old_lines.list);
    free(new_lines.list);
    return is_fine;
}

static void add_line(struct text *out, const struct line *line)
{
    text_add(out, line->start, line->length);
    text_add_char(out, '\n');
}

/* Applies a patch to a text; false if the text has other lines than the patch says. */
bool diff_apply(const char *old_text, const char *patch, struct text *out)
{
    struct lines lines = { NULL, 0 };
    size_t at = 0;
    bool is_fine = split(old_text, &lines);

    while (is_fine && *patch != '\0') {
        size_t length = strcspn(patch, "\n");
        struct line wanted = { patch + 1, length > 0 ? length - 1 : 0, 0 };
        size_t old_line, old_count;

        wanted.hash = crc32_of(wanted.start, wanted.length);
        switch (*patch) {
        case '@':
            is_fine = sscanf(patch, "@@ -%zu,%zu", &old_line, &old_count) == 2;
            old_line -= is_fine && old_count > 0;
            is_fine = is_fine && old_line >= at && old_line <= lines.count;
            while (is_fine && at < old_line)
                add_line(out, &lines.list[at++]);
            break;
        case '+':
            add_line(out, &wanted);
            break;
        case ' ':
        case '-':
            is_fine = at < lines.count && is_same(&lines.list[at], &wanted);
            if (is_fine && *patch == ' ')
                add_line(out, &wanted);
            at++;
            break;
        default:
            is_fine = false;
        }
        patch += length + (patch[length] == '\n');
    }
    while (is_fine && at < lines.count)
        add_line(out, &lines.list[at++]);
    free(lines.list);
    return is_fine;
}

/* The part of all lines that two texts have in common, from 0 to 1. */
double diff_similarity(const char *one, const char *other)
{
    struct edit_list edits = { NULL, 0, 0 };
    size_t kept = 0;
    double similarity = 1.0;

    if (!diff_lines(one, other, &edits))
        return 0.0;
    for (size_t edit = 0; edit < edits.count; edit++)
        kept += edits.edits[edit].kind == EDIT_KEEP;
    if (edits.count > 0)
        similarity = 2.0 * (double)kept / (double)(edits.count + kept);
    diff_free(&edits);
    return similarity;
}

/* The longest sequence of bytes that two strings have in common, not necessarily side by side. */
bool diff_common(const char *one, const char *other, struct text *out)
{
    size_t rows = strlen(one) + 1, columns = strlen(other) + 1, row, column;
    uint32_t *lengths = calloc(rows * columns, sizeof(*lengths));
    bool is_fine = lengths != NULL;

    if (!is_fine)
        return false;
    /* From the ends, so that the sequence can be followed forwards. */
    for (row = rows - 1; row-- > 0;) {
        for (column = columns - 1; column-- > 0;) {
            uint32_t below = lengths[(row + 1) * columns + column];
            uint32_t right = lengths[row * columns + column + 1];
            uint32_t longest = below > right ? below : right;

            if (one[row] == other[column])
                longest = lengths[(row + 1) * columns + column + 1] + 1;
            lengths[row * columns + column] = longest;
        }
    }
    row = 0;
    column = 0;
    while (is_fine && one[row] != '\0' && other[column] != '\0') {
        uint32_t here = lengths[row * columns + column];

        if (one[row] == other[column]) {
            is_fine = text_add_char(out, one[row]);
            row++;
            column++;
        } else if (lengths[(row + 1) * columns + column] == here) {
            row++;
        } else {
            column++;
        }
    }
    free(lengths);
    return is_fine;
}

/* Prints both texts side by side, in columns of a width. */
bool diff_print_columns(const char *old_text, const char *new_text, size_t width, struct text *out)
{
    struct lines old_lines = { NULL, 0 }, new_lines = { NULL, 0 };
    struct edit_list edits = { NULL, 0, 0 };
    bool is_fine = split(old_text, &old_lines) && split(new_text, &new_lines) &&
                   diff_of(&old_lines, &new_lines, &edits);

    for (size_t edit = 0; is_fine && edit < edits.count; edit++) {
        const struct edit *one = &edits.edits[edit];
        const struct line none = { "", 0, 0 };
        const struct line *left =
            one->kind == EDIT_INSERT ? &none : &old_lines.list[one->old_line];
        const struct line *right =
            one->kind == EDIT_REMOVE ? &none : &new_lines.list[one->new_line];
        size_t left_shown = left->length < width ? left->length : width;
        size_t right_shown = right->length < width ? right->length : width;

        is_fine = text_add_format(out, "%-*.*s %c %.*s\n", (int)width, (int)left_shown,
                                  left->start, "|<>"[one->kind], (int)right_shown, right->start);
    }
    diff_free(&edits);
    free(old_lines.list);
    free(new_lines.list);
    return is_fine;
}
