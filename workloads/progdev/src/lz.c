/*
 * Compression by what was there before: matches in a window of 64 KiB, found by a hash of four
 * bytes and chains of earlier places; runs; and the move to front.
 *
 * A packed stream has groups of a head byte and what it says: the number of literal bytes in its
 * high half, of matched bytes, less four, in its low half; 15 goes on in further bytes. A distance of two
 * bytes follows the literals, unless the stream ends with them.
 */
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define HASH_BITS 13
#define WINDOW 65535
#define MATCH_MIN 4
#define CHAIN_MAX 32
#define NOWHERE UINT32_MAX

struct matcher {
    const uint8_t *data;
    size_t length;
    uint32_t heads[1 << HASH_BITS];
    uint32_t *previous;
};

static uint32_t hash_at(const uint8_t *data)
{
    uint32_t word;

    memcpy(&word, data, sizeof(word));
    return word * 2654435761u >> (32 - HASH_BITS);
}

static bool matcher_init(struct matcher *matcher, const uint8_t *data, size_t length)
{
    matcher->data = data;
    matcher->length = length;
    matcher->previous = malloc((length + 1) * sizeof(*matcher->previous));
    memset(matcher->heads, 0xff, sizeof(matcher->heads));
    return matcher->previous != NULL && length < NOWHERE;
}

/* Notes a place, so that later ones can refer to it. */
static void note(struct matcher *matcher, size_t at)
{
    uint32_t hash;

    if (at + MATCH_MIN > matcher->length)
        return;
    hash = hash_at(matcher->data + at);
    matcher->previous[at] = matcher->heads[hash];
    matcher->heads[hash] = (uint32_t)at;
}

static size_t common(const struct matcher *matcher, size_t one, size_t other)
{
    size_t length = 0;

    while (other + length < matcher->length &&
           matcher->data[one + length] == matcher->data[other + length])
        length++;
    return length;
}

/* Returns the length of the longest match at a place, 0 if it is too short; and how far back. */
static size_t find_match(const struct matcher *matcher, size_t at, size_t *distance)
{
    size_t best = 0;
    uint32_t candidate;

    if (at + MATCH_MIN > matcher->length)
        return 0;
    candidate = matcher->heads[hash_at(matcher->data + at)];
    for (unsigned tries = 0; tries < CHAIN_MAX && candidate != NOWHERE; tries++) {
        size_t length;

        if (at - candidate > WINDOW)
            break;
        length = common(matcher, candidate, at);
        if (length > best) {
            best = length;
            *distance = at - candidate;
        }
        candidate = matcher->previous[candidate];
    }
    return best < MATCH_MIN ? 0 : best;
}

/* What is left of a number beyond the 15 that a half byte says. */
static bool add_rest(struct bytes *out, size_t number)
{
    if (number < 15)
        return true;
    for (number -= 15; number >= 255; number -= 255) {
        if (!bytes_add(out, 255))
            return false;
    }
    return bytes_add(out, (uint8_t)number);
}

static uint8_t half(size_t number)
{
    return number < 15 ? (uint8_t)number : 15;
}

static bool add_group(struct bytes *out, const uint8_t *literals, size_t count, size_t match,
                      size_t distance)
{
    size_t more = match == 0 ? 0 : match - MATCH_MIN;
    bool is_fine = bytes_add(out, (uint8_t)(half(count) << 4 | half(more))) && add_rest(out, count);

    for (size_t literal = 0; is_fine && literal < count; literal++)
        is_fine = bytes_add(out, literals[literal]);
    if (match == 0)
        return is_fine;
    return is_fine && bytes_add(out, (uint8_t)distance) &&
           bytes_add(out, (uint8_t)(distance >> 8)) && add_rest(out, more);
}

/* A match is put off if the one at the next place is longer. */
bool lz_pack(const uint8_t *data, size_t length, struct bytes *out)
{
    struct matcher *matcher = malloc(sizeof(*matcher));
    size_t at = 0, literals = 0;
    bool is_fine = matcher != NULL && matcher_init(matcher, data, length);

    while (is_fine && at < length) {
        size_t distance = 0, later = 0, match = find_match(matcher, at, &distance);

        note(matcher, at);
        if (match > 0 && find_match(matcher, at + 1, &later) > match + 1)
            match = 0;
        if (match == 0) {
            at++;
            literals++;
            continue;
        }
        is_fine = add_group(out, data + at - literals, literals, match, distance);
        literals = 0;
        for (size_t place = at + 1; place < at + match; place++)
            note(matcher, place);
        at += match;
    }
    if (is_fine && literals > 0)
        is_fine = add_group(out, data + length - literals, literals, 0, 0);
    if (matcher != NULL)
        free(matcher->previous);
    free(matcher);
    return is_fine;
}

/* Reads what is left of a number; false at the end of the stream. */
static bool read_rest(const uint8_t *data, size_t length, size_t *at, size_t *number)
{
    uint8_t byte = 255;

    if (*number < 15)
        return true;
    while (byte == 255) {
        if (*at >= length)
            return false;
        byte = data[(*at)++];
        *number += byte;
    }
    return true;
}

bool lz_unpack(const uint8_t *data, size_t length, struct bytes *out)
{
    size_t at = 0;

    while (at < length) {
        size_t literals = data[at] >> 4, match = data[at] & 15, distance;

        at++;
        if (!read_rest(data, length, &at, &literals) || literals > length - at)
            return false;
        for (; literals > 0; literals--) {
            if (!bytes_add(out, data[at++]))
                return false;
        }
        if (at == length)
            return match == 0;
        if (length - at < 2)
            return false;
        distance = data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        if (!read_rest(data, length, &at, &match) || distance == 0 || distance > out->length)
            return false;
        /* Byte by byte: a match may run into what it makes itself. */
        for (match += MATCH_MIN; match > 0; match--) {
            if (!bytes_add(out, out->data[out->length - distance]))
                return false;
        }
    }
    return true;
}

/* Runs of three and more bytes: the byte three times, and how many more there are. */
bool run_length_pack(const uint8_t *data, size_t length, struct bytes *out)
{
    size_t at = 0;
    bool is_fine = true;

    while (is_fine && at < length) {
        size_t run = 1;

        while (at + run < length && run < 258 && data[at + run] == data[at])
            run++;
        for (size_t byte = 0; is_fine && byte < run && byte < 3; byte++)
            is_fine = bytes_add(out, data[at]);
        if (is_fine && run >= 3)
            is_fine = bytes_add(out, (uint8_t)(run - 3));
        at += run;
    }
    return is_fine;
}

bool run_length_unpack(const uint8_t *data, size_t length, struct bytes *out)
{
    size_t same = 0;

    for (size_t at = 0; at < length; at++) {
        same = at > 0 && same > 0 && data[at] == data[at - 1] ? same + 1 : 1;
        if (!bytes_add(out, data[at]))
            return false;
        if (same < 3)
            continue;
        if (++at == length)
            return false;
        for (unsigned more = data[at]; more > 0; more--) {
            if (!bytes_add(out, data[at - 1]))
                return false;
        }
        same = 0;
    }
    return true;
}

static void first_table(uint8_t table[256])
{
    for (unsigned byte = 0; byte < 256; byte++)
        table[byte] = (uint8_t)byte;
}

/* Moves the byte at a place to the front of a table; returns it. */
static uint8_t to_front(uint8_t table[256], uint8_t place)
{
    uint8_t byte = table[place];

    memmove(table + 1, table, place);
    table[0] = byte;
    return byte;
}

/* Replaces each byte by its place in a list of those used last. */
bool move_to_front(const uint8_t *data, size_t length, struct bytes *out)
{
    uint8_t table[256];

    first_table(table);
    for (size_t at = 0; at < length; at++) {
        uint8_t place = (uint8_t)((uint8_t *)memchr(table, data[at], sizeof(table)) - table);

        to_front(table, place);
        if (!bytes_add(out, place))
            return false;
    }
    return true;
}

bool move_to_front_back(const uint8_t *data, size_t length, struct bytes *out)
{
    uint8_t table[256];

    first_table(table);
    for (size_t at = 0; at < length; at++) {
        if (!bytes_add(out, to_front(table, data[at])))
            return false;
    }
    return true;
}

/* A rotation of a block, by where it starts. */
struct rotation {
    const uint8_t *block;
    size_t length;
    size_t start;
};

static int by_rotation(const void *one, const void *other)
{
    const struct rotation *a = one, *b = other;
    size_t place = 0;

    while (place < a->length) {
        uint8_t x = a->block[(a->start + place) % a->length];
        uint8_t y = b->block[(b->start + place) % b->length];

        if (x != y)
            return x < y ? -1 : 1;
        place++;
    }
    return (a->start > b->start) - (a->start < b->start);
}

/* The transform of Burrows and Wheeler: the last bytes of all rotations in order, after the place
 * of the block itself (4 bytes, the lowest first). */
bool block_sort(const uint8_t *data, size_t length, struct bytes *out)
{
    struct rotation *rotations = malloc((length + 1) * sizeof(*rotations));
    size_t first = 0;
    bool is_fine = rotations != NULL && length < UINT32_MAX;

    for (size_t start = 0; is_fine && start < length; start++) {
        rotations[start].block = data;
        rotations[start].length = length;
        rotations[start].start = start;
    }
    if (is_fine)
        sort_quick(rotations, length, sizeof(*rotations), by_rotation);
    for (size_t place = 0; is_fine && place < length; place++) {
        if (rotations[place].start == 0)
            first = place;
    }
    for (unsigned byte = 0; is_fine && byte < 4; byte++)
        is_fine = bytes_add(out, (uint8_t)(first >> (8 * byte)));
    for (size_t place = 0; is_fine && place < length; place++) {
        size_t last = (rotations[place].start + length - 1) % length;

        is_fine = bytes_add(out, data[last]);
    }
    free(rotations);
    return is_fine;
}

/* Follows the transform back: the place of a byte among its equals is the same in both columns. */
bool block_sort_back(const uint8_t *data, size_t length, struct bytes *out)
{
    size_t counts[257] = { 0 }, place = 0, *next;
    bool is_fine = true;

    if (length < 4)
        return false;
    for (unsigned byte = 0; byte < 4; byte++)
        place |= (size_t)data[byte] << (8 * byte);
    data += 4;
    length -= 4;
    if (length == 0)
        return true;
    next = malloc(length * sizeof(*next));
    if (next == NULL || place >= length) {
        free(next);
        return false;
    }
    for (size_t at = 0; at < length; at++)
        counts[data[at] + 1]++;
    for (size_t byte = 1; byte <= 256; byte++)
        counts[byte] += counts[byte - 1];
    for (size_t at = 0; at < length; at++)
        next[counts[data[at]]++] = at;
    for (size_t at = 0; is_fine && at < length; at++) {
        place = next[place];
        is_fine = bytes_add(out, data[place]);
    }
    free(next);
    return is_fine;
}

/* Each byte as its difference from the one before. */
bool delta_pack(const uint8_t *data, size_t length, struct bytes *out)
{
    uint8_t last = 0;

    for (size_t at = 0; at < length; at++) {
        if (!bytes_add(out, (uint8_t)(data[at] - last)))
            return false;
        last = data[at];
    }
    return true;
}

bool delta_unpack(const uint8_t *data, size_t length, struct bytes *out)
{
    uint8_t last = 0;

    for (size_t at = 0; at < length; at++) {
        last = (uint8_t)(last + data[at]);
        if (!bytes_add(out, last))
            return false;
    }
    return true;
}
