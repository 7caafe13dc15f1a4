/*
 * Regular expressions, by the method of Thompson: the pattern becomes a graph of states, and all
 * states that a string can reach are followed at the same time. So the time grows with the length
 * of pattern and string, whatever they are.
 *
 * Syntax: . [abc] [^a-z] \d \w \s ^ $ ( ) | * + ? {m} {m,n}
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define REPEAT_MAX 255
#define STATES_MAX 20000

enum state_kind {
    STATE_SET,   /* a character of a set, then `next` */
    STATE_SPLIT, /* `next` or `other` */
    STATE_START, /* at the start of the string */
    STATE_END,   /* at its end */
    STATE_MATCH,
};

struct state {
    enum state_kind kind;
    size_t next;
    size_t other;
    uint8_t set[32];
};

struct regex {
    struct state *states;
    size_t count;
    size_t capacity;
    size_t first;
};

/* A piece of the graph: where it starts, and the state whose `next` is its end. */
struct piece {
    size_t first;
    size_t last;
};

struct parser {
    struct regex *regex;
    const char *at;
    const char *error;
    unsigned depth;
};

static struct piece parse_choice(struct parser *parser);

static void set_add(uint8_t set[32], unsigned char character)
{
    set[character / 8] |= (uint8_t)(1u << character % 8);
}

static bool set_has(const uint8_t set[32], unsigned char character)
{
    return set[character / 8] >> character % 8 & 1;
}

static size_t new_state(struct parser *parser, enum state_kind kind)
{
    struct regex *regex = parser->regex;

    if (regex->count == regex->capacity) {
        size_t capacity = regex->capacity == 0 ? 32 : regex->capacity * 2;
        struct state *states = NULL;

        if (capacity <= STATES_MAX * 2)
            states = realloc(regex->states, capacity * sizeof(*states));
        if (states == NULL) {
            parser->error = "the pattern is too large";
            return 0;
        }
        regex->states = states;
        regex->capacity = capacity;
    }
    memset(&regex->states[regex->count], 0, sizeof(struct state));
    regex->states[regex->count].kind = kind;
    return regex->count++;
}

/* A state that only leads on: a choice between one way and the same way. */
static struct piece empty_piece(struct parser *parser)
{
    size_t state = new_state(parser, STATE_SPLIT);
    struct piece piece = { state, state };

    return piece;
}

static void connect(struct parser *parser, size_t from, size_t to)
{
    if (parser->error != NULL)
        return;
    if (parser->regex->states[from].kind == STATE_SPLIT &&
        parser->regex->states[from].other == parser->regex->states[from].next)
        parser->regex->states[from].other = to;
    parser->regex->states[from].next = to;
}

static void add_class(uint8_t set[32], char name)
{
    for (unsigned character = 0; character < 256; character++) {
        bool is_in = false;

        switch (tolower((unsigned char)name)) {
        case 'd':
            is_in = character < 128 && isdigit((int)character);
            break;
        case 'w':
            is_in = character == '_' || (character < 128 && isalnum((int)character));
            break;
        case 's':
            is_in = character < 128 && isspace((int)character);
            break;
        }
        if (is_in != (bool)isupper((unsigned char)name))
            set_add(set, (unsigned char)character);
    }
}

/* One character of a pattern after a backslash. */
static void add_escaped(uint8_t set[32], char character)
{
    switch (character) {
    case 'n':
        set_add(set, '\n');
        break;
    case 't':
        set_add(set, '\t');
        break;
    case 'd': case 'D': case 'w': case 'W': case 's': case 'S':
        add_class(set, character);
        break;
    default:
        set_add(set, (unsigned char)character);
    }
}

static void parse_set(struct parser *parser, uint8_t set[32])
{
    bool is_negated = *parser->at == '^', is_first = true;

    parser->at += is_negated;
    while (*parser->at != '\0' && (is_first || *parser->at != ']')) {
        unsigned char low = (unsigned char)*parser->at++, high;

        is_first = false;
        if (low == '\\' && *parser->at != '\0') {
            add_escaped(set, *parser->at++);
            continue;
        }
        high = low;
        if (parser->at[0] == '-' && parser->at[1] != '\0' && parser->at[1] != ']') {
            high = (unsigned char)parser->at[1];
            parser->at += 2;
        }
        if (high < low)
            parser->error = "a range of a set is the wrong way round";
        for (unsigned character = low; character <= high; character++)
            set_add(set, (unsigned char)character);
    }
    if (*parser->at != ']')
        parser->error = "a set has no end";
    else
        parser->at++;
    for (unsigned byte = 0; is_negated && byte < 32; byte++)
        set[byte] = (uint8_t)~set[byte];
}

static struct piece parse_atom(struct parser *parser)
{
    uint8_t set[32] = { 0 };
    struct piece piece;
    char character = *parser->at++;

    switch (character) {
    case '(':
        if (++parser->depth > 100)
            parser->error = "too many brackets in each other";
        piece = parser->error != NULL ? empty_piece(parser) : parse_choice(parser);
        parser->depth--;
        if (*parser->at == ')')
            parser->at++;
        else if (parser->error == NULL)
            parser->error = "a bracket is not closed";
        return piece;
    case '^':
    case '$':
        piece.first = new_state(parser, character == '^' ? STATE_START : STATE_END);
        piece.last = piece.first;
        return piece;
    case '.':
        memset(set, 0xff, sizeof(set));
        set['\n' / 8] &= (uint8_t)~(1u << '\n' % 8);
        break;
    case '[':
        parse_set(parser, set);
        break;
    case '*': case '+': case '?': case '{':
        parser->error = "there is nothing to repeat";
        break;
    case '\\':
        if (*parser->at == '\0')
            parser->error = "a backslash is the last character";
        else
            add_escaped(set, *parser->at++);
        break;
    default:
        set_add(set, (unsigned char)character);
    }
    piece.first = new_state(parser, STATE_SET);
    piece.last = piece.first;
    if (parser->error == NULL)
        memcpy(parser->regex->states[piece.first].set, set, sizeof(set));
    return piece;
}

static struct piece optional(struct parser *parser, struct piece piece)
{
    size_t split = new_state(parser, STATE_SPLIT);
    struct piece end = empty_piece(parser), whole = { split, end.last };

    connect(parser, piece.last, end.first);
    if (parser->error == NULL) {
        parser->regex->states[split].next = piece.first;
        parser->regex->states[split].other = end.first;
    }
    return whole;
}

static struct piece repeated(struct parser *parser, struct piece piece)
{
    size_t split = new_state(parser, STATE_SPLIT);
    struct piece end = empty_piece(parser), whole = { piece.first, end.last };

    connect(parser, piece.last, split);
    if (parser->error == NULL) {
        parser->regex->states[split].next = piece.first;
        parser->regex->states[split].other = end.first;
    }
    return whole;
}

static struct piece joined(struct parser *parser, struct piece one, struct piece other)
{
    struct piece whole = { one.first, other.last };

    connect(parser, one.last, other.first);
    return whole;
}

/* Reads {m}, {m,} or {m,n}; `most` is 0 if there is no bound. */
static void parse_counts(struct parser *parser, unsigned *least, unsigned *most)
{
    char *end;

    *least = (unsigned)strtoul(parser->at, &end, 10);
    *most = *least;
    if (*end == ',') {
        const char *second = end + 1;

        *most = (unsigned)strtoul(second, &end, 10);
        if (end != second && *most < *least)
            parser->error = "a repetition has its bounds the wrong way round";
    }
    if (*end != '}' || end == parser->at || *least > REPEAT_MAX || *most > REPEAT_MAX)
        parser->error = "a repetition is not as in {1,9}";
    parser->at = *end == '}' ? end + 1 : end;
}

/* Repeats an atom by reading it again, so many times as it is there. */
static struct piece parse_counted(struct parser *parser, const char *atom, struct piece piece)
{
    struct piece whole = empty_piece(parser);
    unsigned least, most;
    const char *after;

    parse_counts(parser, &least, &most);
    after = parser->at;
    if (parser->error != NULL)
        return whole;
    if (least == 0 && most == 0)
        return joined(parser, whole, optional(parser, repeated(parser, piece)));
    for (unsigned copy = 0; copy < most || copy < least; copy++) {
        struct piece next = piece;

        if (copy > 0) {
            parser->at = atom;
            next = parse_atom(parser);
        }
        if (copy >= least)
            next = optional(parser, next);
        if (most == 0 && copy + 1 == least)
            next = repeated(parser, next);
        whole = joined(parser, whole, next);
        if (parser->error != NULL)
            break;
    }
    parser->at = after;
    return whole;
}

static struct piece parse_repetition(struct parser *parser)
{
    const char *atom = parser->at;
    struct piece piece = parse_atom(parser);

    while (parser->error == NULL) {
        switch (*parser->at) {
        case '*':
            parser->at++;
            piece = optional(parser, repeated(parser, piece));
            break;
        case '+':
            parser->at++;
            piece = repeated(parser, piece);
            break;
        case '?':
            parser->at++;
            piece = optional(parser, piece);
            break;
        case '{':
            parser->at++;
            return parse_counted(parser, atom, piece);
        default:
            return piece;
        }
    }
    return piece;
}

static struct piece parse_sequence(struct parser *parser)
{
    struct piece whole = empty_piece(parser);

    while (parser->error == NULL && *parser->at != '\0' && *parser->at != '|' && *parser->at != ')')
        whole = joined(parser, whole, parse_repetition(parser));
    return whole;
}

static struct piece parse_choice(struct parser *parser)
{
    struct piece whole = parse_sequence(parser);

    while (parser->error == NULL && *parser->at == '|') {
        size_t split = new_state(parser, STATE_SPLIT);
        struct piece other, end = empty_piece(parser);

        parser->at++;
        other = parse_sequence(parser);
        connect(parser, whole.last, end.first);
        connect(parser, other.last, end.first);
        if (parser->error == NULL) {
            parser->regex->states[split].next = whole.first;
            parser->regex->states[split].other = other.first;
        }
        whole.first = split;
        whole.last = end.last;
    }
    return whole;
}

struct regex *regex_compile(const char *pattern, const char **error)
{
    struct regex *regex = calloc(1, sizeof(*regex));
    struct parser parser = { regex, pattern, NULL, 0 };
    struct piece whole;

    *error = "no memory";
    if (regex == NULL)
        return NULL;
    whole = parse_choice(&parser);
    if (parser.error == NULL && *parser.at != '\0')
        parser.error = "a bracket is closed that is not open";
    connect(&parser, whole.last, new_state(&parser, STATE_MATCH));
    regex->first = whole.first;
    *error = parser.error;
    if (parser.error == NULL)
        return regex;
    regex_free(regex);
    return NULL;
}

void regex_free(struct regex *regex)
{
    if (regex == NULL)
        return;
    free(regex->states);
    free(regex);
}

/* The states that are reached, in a list; `mark` says at which step a state came into it. */
struct reached {
    size_t *list;
    size_t *mark;
    size_t count;
    size_t step;
    bool is_match;
};

static void reach(const struct regex *regex, struct reached *reached, size_t state, bool at_start,
                  bool at_end)
{
    for (;;) {
        const struct state *found = &regex->states[state];

        if (reached->mark[state] == reached->step)
            return;
        reached->mark[state] = reached->step;
        switch (found->kind) {
        case STATE_SET:
            reached->list[reached->count++] = state;
            return;
        case STATE_MATCH:
            reached->is_match = true;
            return;
        case STATE_START:
            if (!at_start)
                return;
            break;
        case STATE_END:
            if (!at_end)
                return;
            break;
        case STATE_SPLIT:
            if (found->other != found->next)
                reach(regex, reached, found->other, at_start, at_end);
            break;
        }
        state = found->next;
    }
}

/* Returns the length of the longest match that starts at a place; SIZE_MAX if none does. */
static size_t longest_match(const struct regex *regex, const char *string, size_t start,
                            struct reached *now, struct reached *next)
{
    size_t length = SIZE_MAX, at = start;

    now->count = 0;
    now->step++;
    now->is_match = false;
    reach(regex, now, regex->first, start == 0, string[start] == '\0');
    for (;;) {
        if (now->is_match)
            length = at - start;
        if (now->count == 0 || string[at] == '\0')
            return length;
        next->count = 0;
        next->step++;
        next->is_match = false;
        for (size_t place = 0; place < now->count; place++) {
            const struct state *state = &regex->states[now->list[place]];

            if (set_has(state->set, (unsigned char)string[at]))
                reach(regex, next, state->next, false, string[at + 1] == '\0');
        }
        at++;
        struct reached kept = *now;

        *now = *next;
        *next = kept;
    }
}

static bool reached_init(struct reached *reached, size_t count)
{
    memset(reached, 0, sizeof(*reached));
    reached->list = malloc(count * sizeof(*reached->list));
    reached->mark = calloc(count, sizeof(*reached->mark));
    return reached->list != NULL && reached->mark != NULL;
}

/* Finds the first match from a place on. */
static bool search_from(const struct regex *regex, const char *string, size_t from, size_t *start,
                        size_t *length)
{
    struct reached now, next;
    bool is_found = false;
    bool is_ready = reached_init(&now, regex->count) & reached_init(&next, regex->count);

    for (*start = from; is_ready; ++*start) {
        *length = longest_match(regex, string, *start, &now, &next);
        is_found = *length != SIZE_MAX;
        if (is_found || string[*start] == '\0')
            break;
    }
    free(now.list);
    free(now.mark);
    free(next.list);
    free(next.mark);
    return is_found;
}

bool regex_search(const struct regex *regex, const char *string, size_t *start, size_t *length)
{
    return search_from(regex, string, 0, start, length);
}

/* Whether all of a string matches. */
bool regex_is_match(const struct regex *regex, const char *string)
{
    size_t start, length;

    return search_from(regex, string, 0, &start, &length) && start == 0 &&
           length == strlen(string);
}

/* Counts matches that do not overlap. */
size_t regex_count(const struct regex *regex, const char *string)
{
    size_t count = 0, from = 0, start, length, end = strlen(string);

    while (from <= end && search_from(regex, string, from, &start, &length)) {
        count++;
        from = start + (length == 0 ? 1 : length);
    }
    return count;
}
