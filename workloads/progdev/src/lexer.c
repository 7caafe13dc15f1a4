/*
 * The words of a small language with numbers, functions and loops.
 *
 * A token points into the source and owns nothing. After an error the lexer goes on with the next
 * character, so that one pass finds all of them.
 */
#include <ctype.h>
#include <string.h>

#include "kit.h"

struct keyword {
    const char *name;
    enum token_kind kind;
};

static const struct keyword keywords[] = {
    { "and", TOKEN_AND },       { "else", TOKEN_ELSE },   { "false", TOKEN_FALSE },
    { "fn", TOKEN_FUNCTION },   { "if", TOKEN_IF },       { "let", TOKEN_LET },
    { "not", TOKEN_NOT },       { "or", TOKEN_OR },       { "print", TOKEN_PRINT },
    { "return", TOKEN_RETURN }, { "true", TOKEN_TRUE },   { "while", TOKEN_WHILE },
};

static const char *const names[] = {
    [TOKEN_END] = "end of the source",
    [TOKEN_NUMBER] = "number",
    [TOKEN_STRING] = "string",
    [TOKEN_NAME] = "name",
    [TOKEN_LET] = "let",
    [TOKEN_IF] = "if",
    [TOKEN_ELSE] = "else",
    [TOKEN_WHILE] = "while",
    [TOKEN_FUNCTION] = "fn",
    [TOKEN_RETURN] = "return",
    [TOKEN_PRINT] = "print",
    [TOKEN_TRUE] = "true",
    [TOKEN_FALSE] = "false",
    [TOKEN_AND] = "and",
    [TOKEN_OR] = "or",
    [TOKEN_NOT] = "not",
    [TOKEN_PLUS] = "+",
    [TOKEN_MINUS] = "-",
    [TOKEN_STAR] = "*",
    [TOKEN_SLASH] = "/",
    [TOKEN_PERCENT] = "%",
    [TOKEN_ASSIGN] = "=",
    [TOKEN_EQUAL] = "==",
    [TOKEN_UNEQUAL] = "!=",
    [TOKEN_LESS] = "<",
    [TOKEN_LESS_EQUAL] = "<=",
    [TOKEN_MORE] = ">",
    [TOKEN_MORE_EQUAL] = ">=",
    [TOKEN_OPEN] = "(",
    [TOKEN_CLOSE] = ")",
    [TOKEN_OPEN_BRACE] = "{",
    [TOKEN_CLOSE_BRACE] = "}",
    [TOKEN_COMMA] = ",",
    [TOKEN_SEMICOLON] = ";",
    [TOKEN_ERROR] = "error",
};

const char *token_name(enum token_kind kind)
{
    size_t count = sizeof(names) / sizeof(names[0]);

    return (size_t)kind < count ? names[kind] : "unknown";
}

void lexer_init(struct lexer *lexer, const char *source)
{
    lexer->at = source;
    lexer->line = 1;
    lexer->error = NULL;
}

/* Skips blanks, comments to the end of the line, and comments in brackets, which nest. */
static bool skip_blanks(struct lexer *lexer)
{
    unsigned depth = 0;

    for (;;) {
        char character = *lexer->at;

        if (character == '\0') {
            if (depth > 0)
                lexer->error = "a comment has no end";
            return depth == 0;
        }
        if (character == '\n')
            lexer->line++;
        if (lexer->at[0] == '/' && lexer->at[1] == '*') {
            depth++;
            lexer->at += 2;
        } else if (depth > 0 && lexer->at[0] == '*' && lexer->at[1] == '/') {
            depth--;
            lexer->at += 2;
        } else if (depth > 0 || isspace((unsigned char)character)) {
            lexer->at++;
        } else if (character == '#') {
            while (*lexer->at != '\0' && *lexer->at != '\n')
                lexer->at++;
        } else {
            return true;
        }
    }
}

static struct token made(const struct lexer *lexer, enum token_kind kind, const char *start)
{
    struct token token = { kind, start, (size_t)(lexer->at - start), 0, lexer->line };

    return token;
}

static struct token failed(struct lexer *lexer, const char *start, const char *error)
{
    lexer->error = error;
    return made(lexer, TOKEN_ERROR, start);
}

static int digit_value(char digit)
{
    if (isdigit((unsigned char)digit))
        return digit - '0';
    if (isxdigit((unsigned char)digit))
        return tolower((unsigned char)digit) - 'a' + 10;
    return -1;
}

/* A number: 12, 1_000, 0x1f or 0b101. */
static struct token number(struct lexer *lexer)
{
    const char *start = lexer->at;
    int base = 10;
    bool has_digits = false, is_too_large = false;
    uint64_t value = 0;
    struct token token;

    if (start[0] == '0' && (start[1] == 'x' || start[1] == 'b')) {
        base = start[1] == 'x' ? 16 : 2;
        lexer->at += 2;
    }
    for (;; lexer->at++) {
        int digit = digit_value(*lexer->at);

        if (*lexer->at == '_' && has_digits)
            continue;
        if (digit < 0 || digit >= base)
            break;
        has_digits = true;
        if (value > (INT64_MAX - (uint64_t)digit) / (uint64_t)base)
            is_too_large = true;
        else
            value = value * (uint64_t)base + (uint64_t)digit;
    }
    if (!has_digits || isalnum((unsigned char)*lexer->at))
        return failed(lexer, start, "a number has a wrong digit");
    if (is_too_large)
        return failed(lexer, start, "a number is too large");
    token = made(lexer, TOKEN_NUMBER, start);
    token.number = (int64_t)value;
    return token;
}

static struct token string(struct lexer *lexer)
{
    const char *start = lexer->at++;

    while (*lexer->at != '"') {
        if (*lexer->at == '\0' || *lexer->at == '\n')
            return failed(lexer, start, "a string has no end");
        if (*lexer->at == '\\' && lexer->at[1] != '\0')
            lexer->at++;
        lexer->at++;
    }
    lexer->at++;
    return made(lexer, TOKEN_STRING, start);
}

static enum token_kind keyword_or_name(const char *start, size_t length)
{
    size_t low = 0, high = sizeof(keywords) / sizeof(keywords[0]);

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(start, keywords[middle].name, length);

        if (order == 0 && keywords[middle].name[length] != '\0')
            order = -1;
        if (order == 0)
            return keywords[middle].kind;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return TOKEN_NAME;
}

static struct token name(struct lexer *lexer)
{
    const char *start = lexer->at;

    while (*lexer->at == '_' || isalnum((unsigned char)*lexer->at))
        lexer->at++;
    return made(lexer, keyword_or_name(start, (size_t)(lexer->at - start)), start);
}

/* A sign that means something else if another one follows. */
static struct token one_or_two(struct lexer *lexer, char second, enum token_kind one,
                               enum token_kind two)
{
    const char *start = lexer->at++;

    if (*lexer->at != second)
        return made(lexer, one, start);
    lexer->at++;
    return made(lexer, two, start);
}

static struct token sign(struct lexer *lexer)
{
    const char *start = lexer->at;
    enum token_kind kind;

    switch (*start) {
    case '=':
        return one_or_two(lexer, '=', TOKEN_ASSIGN, TOKEN_EQUAL);
    case '!':
        return one_or_two(lexer, '=', TOKEN_NOT, TOKEN_UNEQUAL);
    case '<':
        return one_or_two(lexer, '=', TOKEN_LESS, TOKEN_LESS_EQUAL);
    case '>':
        return one_or_two(lexer, '=', TOKEN_MORE, TOKEN_MORE_EQUAL);
    case '+': kind = TOKEN_PLUS; break;
    case '-': kind = TOKEN_MINUS; break;
    case '*': kind = TOKEN_STAR; break;
    case '/': kind = TOKEN_SLASH; break;
    case '%': kind = TOKEN_PERCENT; break;
    case '(': kind = TOKEN_OPEN; break;
    case ')': kind = TOKEN_CLOSE; break;
    case '{': kind = TOKEN_OPEN_BRACE; break;
    case '}': kind = TOKEN_CLOSE_BRACE; break;
    case ',': kind = TOKEN_COMMA; break;
    case ';': kind = TOKEN_SEMICOLON; break;
    default:
        lexer->at++;
        return failed(lexer, start, "no word starts with this character");
    }
    lexer->at++;
    return made(lexer, kind, start);
}

struct token lexer_next(struct lexer *lexer)
{
    if (!skip_blanks(lexer))
        return made(lexer, TOKEN_ERROR, lexer->at);
    if (*lexer->at == '\0')
        return made(lexer, TOKEN_END, lexer->at);
    if (isdigit((unsigned char)*lexer->at))
        return number(lexer);
    if (*lexer->at == '"')
        return string(lexer);
    if (*lexer->at == '_' || isalpha((unsigned char)*lexer->at))
        return name(lexer);
    return sign(lexer);
}

/* Adds what a token stands for: a string without its quotes and escapes, anything else as it is. */
bool token_text(const struct token *token, struct text *out)
{
    const char *end = token->start + token->length - 1;

    if (token->kind != TOKEN_STRING)
        return text_add(out, token->start, token->length);
    for (const char *at = token->start + 1; at < end; at++) {
        char character = *at;

        if (character == '\\') {
            switch (*++at) {
            case 'n': character = '\n'; break;
            case 't': character = '\t'; break;
            default: character = *at;
            }
        }
        if (!text_add_char(out, character))
            return false;
    }
    return true;
}

/* Counts the words of a source by kind; returns how many there are. */
size_t lexer_count(const char *source, size_t counts[TOKEN_ERROR + 1])
{
    struct lexer lexer;
    size_t count = 0;

    memset(counts, 0, (TOKEN_ERROR + 1) * sizeof(counts[0]));
    lexer_init(&lexer, source);
    for (;;) {
        struct token token = lexer_next(&lexer);

        if (token.kind == TOKEN_END)
            return count;
        counts[token.kind]++;
        count++;
        /* An unclosed comment ends where the source does. */
        if (token.kind == TOKEN_ERROR && *lexer.at == '\0')
            return count;
    }
}

/* Prints a source again with one blank between words and the indentation of its blocks. */
bool lexer_format(const char *source, struct text *out)
{
    struct lexer lexer;
    size_t depth = 0;
    bool starts_line = true;

    lexer_init(&lexer, source);
    for (;;) {
        struct token token = lexer_next(&lexer);

        if (token.kind == TOKEN_END)
            return true;
        if (token.kind == TOKEN_ERROR)
            return false;
        if (token.kind == TOKEN_CLOSE_BRACE) {
            depth -= depth > 0;
            if (!starts_line)
                text_add_char(out, '\n');
            starts_line = true;
        }
        if (starts_line)
            text_add_format(out, "%*s", (int)(4 * depth), "");
        else if (token.kind != TOKEN_SEMICOLON && token.kind != TOKEN_COMMA &&
                 token.kind != TOKEN_CLOSE)
            text_add_char(out, ' ');
        if (!text_add(out, token.start, token.length))
            return false;
        starts_line = token.kind == TOKEN_OPEN_BRACE || token.kind == TOKEN_CLOSE_BRACE ||
                      token.kind == TOKEN_SEMICOLON;
        depth += token.kind == TOKEN_OPEN_BRACE;
        if (starts_line)
            text_add_char(out, '\n');
    }
}

/* Whether the brackets of a source are closed in the right order. */
bool lexer_is_balanced(const char *source)
{
    enum token_kind open[64];
    size_t depth = 0;
    struct lexer lexer;

    lexer_init(&lexer, source);
    for (;;) {
        struct token token = lexer_next(&lexer);

        switch (token.kind) {
        case TOKEN_OPEN:
        case TOKEN_OPEN_BRACE:
            if (depth == sizeof(open) / sizeof(open[0]))
                return false;
            open[depth++] = token.kind;
            break;
        case TOKEN_CLOSE:
        case TOKEN_CLOSE_BRACE:
            if (depth == 0 || open[--depth] + 1 != token.kind)
                return false;
            break;
        case TOKEN_END:
            return depth == 0;
        case TOKEN_ERROR:
            return false;
        default:
            break;
        }
    }
}

/* Counts how often each name is used. */
bool lexer_count_names(const char *source, struct hash *names)
{
    struct lexer lexer;
    struct text name;
    bool is_fine = true;

    lexer_init(&lexer, source);
    text_init(&name);
    while (is_fine) {
        struct token token = lexer_next(&lexer);

        if (token.kind == TOKEN_END || token.kind == TOKEN_ERROR) {
            is_fine = token.kind == TOKEN_END;
            break;
        }
        if (token.kind != TOKEN_NAME)
            continue;
        text_clear(&name);
        is_fine = token_text(&token, &name) && hash_add(names, name.bytes, 1);
    }
    text_free(&name);
    return is_fine;
}
