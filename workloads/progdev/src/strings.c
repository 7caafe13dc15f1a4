/* Strings that grow, and what is done with them: splitting, matching, wrapping, encoding. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define CAPACITY_FIRST 32

void text_init(struct text *text)
{
    text->bytes = NULL;
    text->length = 0;
    text->capacity = 0;
}

void text_free(struct text *text)
{
    free(text->bytes);
    text_init(text);
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->bytes != NULL)
        text->bytes[0] = '\0';
}

/* Makes room for so many more bytes and the final zero. */
static bool reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    size_t capacity = text->capacity == 0 ? CAPACITY_FIRST : text->capacity;
    char *bytes;

    if (needed <= text->capacity)
        return true;
    while (capacity < needed) {
        if (capacity > SIZE_MAX / 2)
            return false;
        capacity *= 2;
    }
    bytes = realloc(text->bytes, capacity);
    if (bytes == NULL)
        return false;
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

bool text_add(struct text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return false;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return true;
}

bool text_add_string(struct text *text, const char *string)
{
    return text_add(text, string, strlen(string));
}

bool text_add_char(struct text *text, char character)
{
    return text_add(text, &character, 1);
}

bool text_add_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 || !reserve(text, (size_t)length))
        return false;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
    return true;
}

void text_trim(struct text *text)
{
    size_t start = 0;

    while (text->length > 0 && isspace((unsigned char)text->bytes[text->length - 1]))
        text->length--;
    while (start < text->length && isspace((unsigned char)text->bytes[start]))
        start++;
    if (text->bytes == NULL)
        return;
    memmove(text->bytes, text->bytes + start, text->length - start);
    text->length -= start;
    text->bytes[text->length] = '\0';
}

/* Finds a part of a string by the algorithm of Boyer, Moore and Horspool. */
const char *text_find(const char *string, const char *part)
{
    size_t length = strlen(string), wanted = strlen(part);
    size_t skip[256];
    size_t at = 0;

    if (wanted == 0)
        return string;
    for (size_t character = 0; character < 256; character++)
        skip[character] = wanted;
    for (size_t place = 0; place + 1 < wanted; place++)
        skip[(unsigned char)part[place]] = wanted - 1 - place;
    while (at + wanted <= length) {
        size_t left = wanted;

        while (left > 0 && string[at + left - 1] == part[left - 1])
            left--;
        if (left == 0)
            return string + at;
        at += skip[(unsigned char)string[at + wanted - 1]];
    }
    return NULL;
}

/* Replaces all places of a part; returns how many there were. */
size_t text_replace(struct text *text, const char *old, const char *new_part)
{
    struct text changed;
    size_t count = 0, old_length = strlen(old);
    const char *rest = text->bytes;

    if (old_length == 0 || rest == NULL)
        return 0;
    text_init(&changed);
    for (const char *found = text_find(rest, old); found != NULL; found = text_find(rest, old)) {
        if (!text_add(&changed, rest, (size_t)(found - rest)) ||
            !text_add_string(&changed, new_part)) {
            text_free(&changed);
            return 0;
        }
        rest = found + old_length;
        count++;
    }
    if (!text_add_string(&changed, rest)) {
        text_free(&changed);
        return 0;
    }
    text_free(text);
    *text = changed;
    return count;
}

char **text_split(const char *string, char separator, size_t *count)
{
    size_t parts = 1;
    char **list;

    for (const char *at = string; *at != '\0'; at++)
        parts += *at == separator;
    list = calloc(parts, sizeof(*list));
    *count = 0;
    if (list == NULL)
        return NULL;
    while (*count < parts) {
        const char *end = strchr(string, separator);
        size_t length = end == NULL ? strlen(string) : (size_t)(end - string);

        list[*count] = strndup(string, length);
        if (list[*count] == NULL) {
            text_free_parts(list, *count);
            *count = 0;
            return NULL;
        }
        (*count)++;
        string += length + 1;
    }
    return list;
}

void text_free_parts(char **parts, size_t count)
{
    for (size_t number = 0; number < count; number++)
        free(parts[number]);
    free(parts);
}

static size_t least(size_t one, size_t other, size_t third)
{
    size_t smaller = one < other ? one : other;

    return smaller < third ? smaller : third;
}

/* The edit distance of Levenshtein, in memory of one row. */
size_t text_distance(const char *one, const char *other)
{
    size_t rows = strlen(one), columns = strlen(other);
    size_t *row = malloc((columns + 1) * sizeof(*row));
    size_t distance;

    if (row == NULL)
        return SIZE_MAX;
    for (size_t column = 0; column <= columns; column++)
        row[column] = column;
    for (size_t line = 1; line <= rows; line++) {
        size_t diagonal = row[0];

        row[0] = line;
        for (size_t column = 1; column <= columns; column++) {
            size_t above = row[column];
            size_t changed = diagonal + (one[line - 1] != other[column - 1]);

            row[column] = least(above + 1, row[column - 1] + 1, changed);
            diagonal = above;
        }
    }
    distance = row[columns];
    free(row);
    return distance;
}

/* Whether a character is in a class as in [a-z0-9] or [!x]; moves the pattern to its end. */
static bool is_in_class(const char **pattern, char character, bool *is_closed)
{
    const char *at = *pattern + 1;
    bool negated = *at == '!', found = false, first = true;

    if (negated)
        at++;
    while (*at != '\0' && (first || *at != ']')) {
        first = false;
        if (at[1] == '-' && at[2] != '\0' && at[2] != ']') {
            found |= at[0] <= character && character <= at[2];
            at += 3;
        } else {
            found |= *at == character;
            at++;
        }
    }
    *is_closed = *at == ']';
    *pattern = at;
    return found != negated;
}

/* Whether one character of a pattern, not a star, matches; moves the pattern past it. */
static bool is_one_match(const char **pattern, char character)
{
    const char *start = *pattern;
    bool is_closed, is_match;

    switch (*start) {
    case '?':
        (*pattern)++;
        return true;
    case '[':
        is_match = is_in_class(pattern, character, &is_closed);
        if (is_closed) {
            (*pattern)++;
            return is_match;
        }
        *pattern = start + 1;
        return character == '[';
    case '\\':
        if (start[1] != '\0') {
            *pattern = start + 2;
            return start[1] == character;
        }
        /* fallthrough */
    default:
        (*pattern)++;
        return *start == character;
    }
}

/* Patterns of a shell. Only the last star is ever tried again, so the time is bounded. */
bool text_is_glob_match(const char *pattern, const char *string)
{
    const char *after_star = NULL, *retry = NULL;

    while (*string != '\0') {
        const char *next = pattern;

        if (*pattern == '*') {
            after_star = ++pattern;
            retry = string;
            continue;
        }
        if (*pattern != '\0' && is_one_match(&next, *string)) {
            pattern = next;
            string++;
            continue;
        }
        if (after_star == NULL)
            return false;
        pattern = after_star;
        string = ++retry;
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* Fills lines with words, up to a width that only a longer word exceeds. */
void text_wrap(struct text *out, const char *string, size_t width)
{
    size_t used = 0;

    while (*string != '\0') {
        size_t length = 0;

        while (isspace((unsigned char)*string))
            string++;
        while (string[length] != '\0' && !isspace((unsigned char)string[length]))
            length++;
        if (length == 0)
            break;
        if (used > 0 && used + 1 + length > width) {
            text_add_char(out, '\n');
            used = 0;
        } else if (used > 0) {
            text_add_char(out, ' ');
            used++;
        }
        text_add(out, string, length);
        used += length;
        string += length;
    }
    if (used > 0)
        text_add_char(out, '\n');
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool text_encode_base64(struct text *out, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    if (!reserve(out, (length + 2) / 3 * 4))
        return false;
    for (size_t at = 0; at < length; at += 3) {
        size_t here = length - at < 3 ? length - at : 3;
        uint32_t group = (uint32_t)from[at] << 16;
        char digits[4];

        if (here > 1)
            group |= (uint32_t)from[at + 1] << 8;
        if (here > 2)
            group |= from[at + 2];
        for (unsigned digit = 0; digit < 4; digit++)
            digits[digit] = base64_digits[group >> (18 - 6 * digit) & 63];
        for (size_t digit = here + 1; digit < 4; digit++)
            digits[digit] = '=';
        if (!text_add(out, digits, 4))
            return false;
    }
    return true;
}

static int base64_value(char digit)
{
    const char *found = digit == '\0' ? NULL : strchr(base64_digits, digit);

    return found == NULL ? -1 : (int)(found - base64_digits);
}

bool text_decode_base64(struct text *out, const char *string)
{
    uint32_t group = 0;
    unsigned digits = 0, padding = 0;

    for (; *string != '\0'; string++) {
        int value = base64_value(*string);

        if (isspace((unsigned char)*string))
            continue;
        if (*string == '=') {
            value = 0;
            padding++;
        } else if (value < 0 || padding > 0) {
            return false;
        }
        group = group << 6 | (uint32_t)value;
        if (++digits < 4)
            continue;
        if (padding > 2)
            return false;
        for (unsigned byte = 0; byte < 3 - padding; byte++) {
            if (!text_add_char(out, (char)(group >> (16 - 8 * byte) & 0xff)))
                return false;
        }
        group = 0;
        digits = 0;
    }
    return digits == 0;
}
