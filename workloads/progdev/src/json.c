/* Values of JSON: reading, writing, looking up. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define DEPTH_MAX 64
#define NUMBER_CHARACTERS_MAX 64

struct reader {
    const char *at;
    const char *error;
    unsigned depth;
};

static struct json *read_value(struct reader *reader);

static struct json *fail(struct reader *reader, const char *error)
{
    if (reader->error == NULL)
        reader->error = error;
    return NULL;
}

static struct json *new_value(struct reader *reader, enum json_kind kind)
{
    struct json *value = calloc(1, sizeof(*value));

    if (value == NULL)
        return fail(reader, "no memory");
    value->kind = kind;
    return value;
}

void json_free(struct json *value)
{
    if (value == NULL)
        return;
    for (size_t place = 0; place < value->count; place++) {
        json_free(value->items[place]);
        if (value->names != NULL)
            free(value->names[place]);
    }
    free(value->items);
    free(value->names);
    free(value->string);
    free(value);
}

static void skip_blanks(struct reader *reader)
{
    while (*reader->at != '\0' && strchr(" \t\r\n", *reader->at) != NULL)
        reader->at++;
}

static bool accept(struct reader *reader, char character)
{
    skip_blanks(reader);
    if (*reader->at != character)
        return false;
    reader->at++;
    return true;
}

static bool accept_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

/* Adds a character as UTF-8. */
static bool add_unicode(struct text *text, uint32_t code)
{
    char bytes[4];
    size_t count;

    if (code < 0x80) {
        bytes[0] = (char)code;
        count = 1;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        count = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        count = 3;
    } else {
        bytes[0] = (char)(0xf0 | code >> 18);
        count = 4;
    }
    for (size_t byte = 1; byte < count; byte++)
        bytes[byte] = (char)(0x80 | (code >> (6 * (count - 1 - byte)) & 0x3f));
    return text_add(text, bytes, count);
}

/* Reads four hexadecimal digits. */
static bool read_hex(struct reader *reader, uint32_t *code)
{
    *code = 0;
    for (unsigned digit = 0; digit < 4; digit++) {
        int character = tolower((unsigned char)*reader->at);

        if (!isxdigit(character))
            return false;
        *code = *code << 4 |
                (uint32_t)(isdigit(character) ? character - '0' : character - 'a' + 10);
        reader->at++;
    }
    return true;
}

/* A character by its number; one beyond 16 bits is a pair of halves. */
static bool read_unicode(struct reader *reader, struct text *text)
{
    uint32_t code, low;

    if (!read_hex(reader, &code))
        return false;
    if (code < 0xd800 || code > 0xdfff)
        return code != 0 && add_unicode(text, code);
    if (code > 0xdbff || !accept_word(reader, "\\u") || !read_hex(reader, &low))
        return false;
    if (low < 0xdc00 || low > 0xdfff)
        return false;
    return add_unicode(text, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
}

static bool read_escape(struct reader *reader, struct text *text)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char character = *reader->at;
    const char *found = character == '\0' ? NULL : strchr(from, character);

    if (character == 'u') {
        reader->at++;
        return read_unicode(reader, text);
    }
    if (found == NULL)
        return false;
    reader->at++;
    return text_add_char(text, to[found - from]);
}

/* The rest of a string, whose first quote was read; NULL after an error. */
static char *read_string(struct reader *reader)
{
    struct text text;

    text_init(&text);
    if (!text_add(&text, "", 0)) {
        fail(reader, "no memory");
        return NULL;
    }
    while (*reader->at != '"') {
        unsigned char character = (unsigned char)*reader->at;
        bool is_fine;

        if (character == '\\') {
            reader->at++;
            is_fine = read_escape(reader, &text);
        } else {
            is_fine = character >= 0x20 && text_add_char(&text, (char)character);
            reader->at += is_fine;
        }
        if (!is_fine) {
            text_free(&text);
            fail(reader, "a string has a wrong character or no end");
            return NULL;
        }
    }
    reader->at++;
    return text.bytes;
}

/* A number, of which JSON allows fewer forms than C does. */
static struct json *read_number(struct reader *reader)
{
    const char *start = reader->at, *at = start;
    struct json *value;

    at += *at == '-';
    if (!isdigit((unsigned char)*at) || (at[0] == '0' && isdigit((unsigned char)at[1])))
        return fail(reader, "a value is expected");
    while (isdigit((unsigned char)*at))
        at++;
    if (at[0] == '.') {
        at++;
        if (!isdigit((unsigned char)*at))
            return fail(reader, "a number has no digit after its point");
        while (isdigit((unsigned char)*at))
            at++;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        if (!isdigit((unsigned char)*at))
            return fail(reader, "a number has no exponent");
        while (isdigit((unsigned char)*at))
            at++;
    }
    if (at - start > NUMBER_CHARACTERS_MAX)
        return fail(reader, "a number is too long");
    value = new_value(reader, JSON_NUMBER);
    if (value != NULL)
        value->number = strtod(start, NULL);
    reader->at = at;
    return value;
}

/* Adds an item, and its name in an object; takes both. */
static bool add_item(struct json *value, char *name, struct json *item)
{
    struct json **items = realloc(value->items, (value->count + 1) * sizeof(*items));

    if (items != NULL)
        value->items = items;
    if (items != NULL && value->kind == JSON_OBJECT) {
        char **names = realloc(value->names, (value->count + 1) * sizeof(*names));

        if (names == NULL)
            items = NULL;
        else
            value->names = names;
    }
    if (items == NULL) {
        free(name);
        json_free(item);
        return false;
    }
    if (value->kind == JSON_OBJECT)
        value->names[value->count] = name;
    value->items[value->count++] = item;
    return true;
}

/* The items of an array or an object, whose first bracket was read. */
static struct json *read_items(struct reader *reader, enum json_kind kind, char close)
{
    struct json *value = new_value(reader, kind);

    if (value == NULL || accept(reader, close))
        return value;
    do {
        char *name = NULL;
        struct json *item = NULL;

        if (kind == JSON_OBJECT) {
            if (!accept(reader, '"'))
                fail(reader, "a name is expected");
            else
                name = read_string(reader);
            if (name != NULL && !accept(reader, ':'))
                fail(reader, "a colon is expected");
        }
        if (reader->error == NULL)
            item = read_value(reader);
        if (item == NULL) {
            free(name);
            json_free(value);
            return NULL;
        }
        if (!add_item(value, name, item)) {
            json_free(value);
            return fail(reader, "no memory");
        }
    } while (accept(reader, ','));
    if (accept(reader, close))
        return value;
    json_free(value);
    return fail(reader, "a bracket is not closed");
}

static struct json *read_value(struct reader *reader)
{
    struct json *value = NULL;

    if (++reader->depth > DEPTH_MAX)
        return fail(reader, "brackets are too deep");
    skip_blanks(reader);
    if (accept(reader, '{')) {
        value = read_items(reader, JSON_OBJECT, '}');
    } else if (accept(reader, '[')) {
        value = read_items(reader, JSON_ARRAY, ']');
    } else if (accept(reader, '"')) {
        char *string = read_string(reader);

        value = string == NULL ? NULL : new_value(reader, JSON_STRING);
        if (value == NULL)
            free(string);
        else
            value->string = string;
    } else if (accept_word(reader, "null")) {
        value = new_value(reader, JSON_NULL);
    } else if (accept_word(reader, "true")) {
        value = new_value(reader, JSON_BOOL);
        if (value != NULL)
            value->is_true = true;
    } else if (accept_word(reader, "false")) {
        value = new_value(reader, JSON_BOOL);
    } else {
        value = read_number(reader);
    }
    reader->depth--;
    return value;
}

struct json *json_parse(const char *source, const char **error)
{
    struct reader reader = { source, NULL, 0 };
    struct json *value = read_value(&reader);

    skip_blanks(&reader);
    if (value != NULL && *reader.at != '\0') {
        json_free(value);
        value = fail(&reader, "there is more after the value");
    }
    *error = reader.error;
    return value;
}

static bool print_string(const char *string, struct text *out)
{
    bool is_fine = text_add_char(out, '"');

    for (; is_fine && *string != '\0'; string++) {
        unsigned char character = (unsigned char)*string;

        if (character == '"' || character == '\\')
            is_fine = text_add_format(out, "\\%c", character);
        else if (character < 0x20)
            is_fine = text_add_format(out, "\\u%04x", character);
        else
            is_fine = text_add_char(out, (char)character);
    }
    return is_fine && text_add_char(out, '"');
}

/* A new line with so many levels of indentation; nothing if there is none. */
static bool print_line(struct text *out, int indent, int level)
{
    if (indent <= 0)
        return true;
    return text_add_format(out, "\n%*s", indent * level, "");
}

static bool print_value(const struct json *value, struct text *out, int indent, int level)
{
    bool is_object = value->kind == JSON_OBJECT;

    switch (value->kind) {
    case JSON_NULL:
        return text_add_string(out, "null");
    case JSON_BOOL:
        return text_add_string(out, value->is_true ? "true" : "false");
    case JSON_NUMBER:
        if (value->number == floor(value->number) && fabs(value->number) < 1e15)
            return text_add_format(out, "%.0f", value->number);
        return text_add_format(out, "%.17g", value->number);
    case JSON_STRING:
        return print_string(value->string, out);
    default:
        break;
    }
    if (value->count == 0)
        return text_add_string(out, is_object ? "{}" : "[]");
    text_add_char(out, is_object ? '{' : '[');
    for (size_t place = 0; place < value->count; place++) {
        if (place > 0)
            text_add_char(out, ',');
        print_line(out, indent, level + 1);
        if (is_object) {
            print_string(value->names[place], out);
            text_add_string(out, indent > 0 ? ": " : ":");
        }
        if (!print_value(value->items[place], out, indent, level + 1))
            return false;
    }
    print_line(out, indent, level);
    return text_add_char(out, is_object ? '}' : ']');
}

bool json_print(const struct json *value, struct text *out, int indent)
{
    return print_value(value, out, indent, 0);
}

/* The last member of a name counts, as in most readers. */
const struct json *json_member(const struct json *value, const char *name)
{
    if (value == NULL || value->kind != JSON_OBJECT)
        return NULL;
    for (size_t place = value->count; place-- > 0;) {
        if (strcmp(value->names[place], name) == 0)
            return value->items[place];
    }
    return NULL;
}

/* Follows a path as in "runs/0/name". */
const struct json *json_at(const struct json *value, const char *path)
{
    while (value != NULL && *path != '\0') {
        size_t length = strcspn(path, "/");
        char *part = strndup(path, length), *end;

        if (part == NULL)
            return NULL;
        if (value->kind == JSON_ARRAY) {
            unsigned long place = strtoul(part, &end, 10);

            value = *end == '\0' && end != part && place < value->count ? value->items[place]
                                                                        : NULL;
        } else {
            value = json_member(value, part);
        }
        free(part);
        path += length + (path[length] == '/');
    }
    return value;
}

/* Members of objects may be in any order. */
bool json_is_equal(const struct json *one, const struct json *other)
{
    if (one->kind != other->kind || one->count != other->count)
        return false;
    switch (one->kind) {
    case JSON_BOOL:
        return one->is_true == other->is_true;
    case JSON_NUMBER:
        return one->number == other->number;
    case JSON_STRING:
        return strcmp(one->string, other->string) == 0;
    default:
        break;
    }
    for (size_t place = 0; place < one->count; place++) {
        const struct json *match = one->kind == JSON_OBJECT
                                       ? json_member(other, one->names[place])
                                       : other->items[place];

        if (match == NULL || !json_is_equal(one->items[place], match))
            return false;
    }
    return true;
}

size_t json_depth(const struct json *value)
{
    size_t deepest = 0;

    for (size_t place = 0; place < value->count; place++) {
        size_t depth = json_depth(value->items[place]);

        if (depth > deepest)
            deepest = depth;
    }
    return deepest + 1;
}

size_t json_nodes(const struct json *value)
{
    size_t count = 1;

    for (size_t place = 0; place < value->count; place++)
        count += json_nodes(value->items[place]);
    return count;
}
