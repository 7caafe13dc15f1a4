/*
 * Compression by Huffman's codes in their canonical form: of a code only the lengths are stored.
 *
 * A packed stream has the number of bytes (8 bytes, the lowest first), the 256 lengths as nibbles,
 * and the codes, the highest bit first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define LENGTH_MAX 15
#define HEADER_BYTES (8 + 128)

void bytes_init(struct bytes *bytes)
{
    memset(bytes, 0, sizeof(*bytes));
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    bytes_init(bytes);
}

bool bytes_add(struct bytes *bytes, uint8_t byte)
{
    if (bytes->length == bytes->capacity) {
        size_t capacity = bytes->capacity == 0 ? 64 : bytes->capacity * 2;
        uint8_t *data = realloc(bytes->data, capacity);

        if (data == NULL)
            return false;
        bytes->data = data;
        bytes->capacity = capacity;
    }
    bytes->data[bytes->length++] = byte;
    return true;
}

/* A node of the tree: a byte, or two nodes. */
struct node {
    uint64_t count;
    int child[2];
    int symbol;
};

/* Notes how deep the leaves below a node are; returns the deepest. */
static unsigned note_depths(const struct node *nodes, int node, unsigned depth, unsigned *depths)
{
    unsigned left, right;

    if (nodes[node].symbol >= 0) {
        depths[nodes[node].symbol] = depth == 0 ? 1 : depth;
        return depth;
    }
    left = note_depths(nodes, nodes[node].child[0], depth + 1, depths);
    right = note_depths(nodes, nodes[node].child[1], depth + 1, depths);
    return left > right ? left : right;
}

/* Builds the tree by joining the two rarest nodes until one is left. */
static unsigned build(const uint64_t counts[256], unsigned depths[256])
{
    struct node nodes[511];
    struct heap heap;
    int count = 0;
    unsigned deepest = 0;
    bool is_fine = true;

    heap_init(&heap);
    for (int symbol = 0; symbol < 256; symbol++) {
        if (counts[symbol] == 0)
            continue;
        nodes[count].count = counts[symbol];
        nodes[count].symbol = symbol;
        is_fine = is_fine && heap_push(&heap, (int64_t)counts[symbol], &nodes[count]);
        count++;
    }
    while (is_fine && heap.count > 1) {
        struct node *joined = &nodes[count++];

        joined->symbol = -1;
        joined->count = 0;
        for (int side = 0; side < 2; side++) {
            int64_t key;
            void *item;

            heap_pop(&heap, &key, &item);
            joined->child[side] = (int)((struct node *)item - nodes);
            joined->count += (uint64_t)key;
        }
        is_fine = heap_push(&heap, (int64_t)joined->count, joined);
    }
    if (is_fine && count > 0)
        deepest = note_depths(nodes, count - 1, 0, depths);
    heap_free(&heap);
    return is_fine ? deepest : LENGTH_MAX + 1;
}

/* The lengths of the codes of all bytes, 0 for those that do not occur. */
bool huffman_lengths(const uint64_t counts[256], uint8_t lengths[256])
{
    uint64_t scaled[256];

    memcpy(scaled, counts, sizeof(scaled));
    for (unsigned attempt = 0; attempt < 64; attempt++) {
        unsigned depths[256] = { 0 };

        if (build(scaled, depths) <= LENGTH_MAX) {
            for (int symbol = 0; symbol < 256; symbol++)
                lengths[symbol] = (uint8_t)depths[symbol];
            return true;
        }
        /* A flatter distribution has a flatter tree. */
        for (int symbol = 0; symbol < 256; symbol++)
            scaled[symbol] = scaled[symbol] == 0 ? 0 : scaled[symbol] / 2 + 1;
    }
    return false;
}

/* Numbers the codes: shorter ones first, those of the same length by their bytes. */
static void number_codes(const uint8_t lengths[256], uint16_t codes[256])
{
    unsigned of_length[LENGTH_MAX + 2] = { 0 }, next[LENGTH_MAX + 2] = { 0 };
    unsigned code = 0;

    for (int symbol = 0; symbol < 256; symbol++)
        of_length[lengths[symbol]]++;
    of_length[0] = 0;
    for (unsigned length = 1; length <= LENGTH_MAX; length++) {
        code = (code + of_length[length - 1]) << 1;
        next[length] = code;
    }
    for (int symbol = 0; symbol < 256; symbol++) {
        if (lengths[symbol] > 0)
            codes[symbol] = (uint16_t)next[lengths[symbol]]++;
    }
}

bool huffman_pack(const uint8_t *data, size_t length, struct bytes *out)
{
    uint64_t counts[256] = { 0 };
    uint8_t lengths[256];
    uint16_t codes[256] = { 0 };
    uint32_t waiting = 0;
    unsigned bits = 0;
    bool is_fine = true;

    for (size_t at = 0; at < length; at++)
        counts[data[at]]++;
    if (!huffman_lengths(counts, lengths))
        return false;
    number_codes(lengths, codes);
    for (unsigned byte = 0; is_fine && byte < 8; byte++)
        is_fine = bytes_add(out, (uint8_t)((uint64_t)length >> (8 * byte)));
    for (unsigned symbol = 0; is_fine && symbol < 256; symbol += 2)
        is_fine = bytes_add(out, (uint8_t)(lengths[symbol] | lengths[symbol + 1] << 4));
    for (size_t at = 0; is_fine && at < length; at++) {
        waiting = waiting << lengths[data[at]] | codes[data[at]];
        bits += lengths[data[at]];
        for (; is_fine && bits >= 8; bits -= 8)
            is_fine = bytes_add(out, (uint8_t)(waiting >> (bits - 8)));
    }
    if (is_fine && bits > 0)
        is_fine = bytes_add(out, (uint8_t)(waiting << (8 - bits)));
    return is_fine;
}

/* What decodes canonical codes: for each length its first code, and the bytes in order. */
struct decoder {
    unsigned first[LENGTH_MAX + 2];
    unsigned count[LENGTH_MAX + 2];
    unsigned offset[LENGTH_MAX + 2];
    uint8_t symbols[256];
};

/* False if the lengths are none of a whole set of codes. */
static bool decoder_of(const uint8_t lengths[256], struct decoder *decoder)
{
    unsigned code = 0, offset = 0, used = 0;

    memset(decoder, 0, sizeof(*decoder));
    for (int symbol = 0; symbol < 256; symbol++)
        decoder->count[lengths[symbol]]++;
    decoder->count[0] = 0;
    for (unsigned length = 1; length <= LENGTH_MAX; length++) {
        code = (code + decoder->count[length - 1]) << 1;
        decoder->first[length] = code;
        decoder->offset[length] = offset;
        used += decoder->count[length] << (LENGTH_MAX - length);
        for (int symbol = 0; symbol < 256; symbol++) {
            if (lengths[symbol] == length)
                decoder->symbols[offset++] = (uint8_t)symbol;
        }
    }
    return used <= 1u << LENGTH_MAX;
}

bool huffman_unpack(const uint8_t *data, size_t length, struct bytes *out)
{
    struct decoder decoder;
    uint8_t lengths[256];
    uint64_t wanted = 0, done = 0;
    unsigned code = 0, bits = 0;

    if (length < HEADER_BYTES)
        return false;
    for (unsigned byte = 0; byte < 8; byte++)
        wanted |= (uint64_t)data[byte] << (8 * byte);
    for (unsigned symbol = 0; symbol < 256; symbol++)
        lengths[symbol] = data[8 + symbol / 2] >> symbol % 2 * 4 & 15;
    if (!decoder_of(lengths, &decoder))
        return false;
    for (size_t bit = HEADER_BYTES * 8; done < wanted && bit < length * 8; bit++) {
        unsigned place;

        code = code << 1 | (data[bit / 8] >> (7 - bit % 8) & 1);
        if (++bits > LENGTH_MAX)
            return false;
        place = code - decoder.first[bits];
        if (code < decoder.first[bits] || place >= decoder.count[bits])
            continue;
        if (!bytes_add(out, decoder.symbols[decoder.offset[bits] + place]))
            return false;
        done++;
        code = 0;
        bits = 0;
    }
    return done == wanted;
}

/* The bits of information in each byte, if bytes were independent. */
double huffman_entropy(const uint8_t *data, size_t length)
{
    uint64_t counts[256] = { 0 };
    double entropy = 0;

    for (size_t at = 0; at < length; at++)
        counts[data[at]]++;
    for (unsigned symbol = 0; symbol < 256; symbol++) {
        double part = (double)counts[symbol] / (double)length;

        if (counts[symbol] > 0)
            entropy -= part * log2(part);
    }
    return entropy;
}

/* Bits of a stream, the highest of each byte first. */
struct bits {
    struct bytes *out;
    uint8_t waiting;
    unsigned count;
};

static bool bits_add(struct bits *bits, uint64_t value, unsigned count)
{
    while (count-- > 0) {
        bits->waiting = (uint8_t)(bits->waiting << 1 | (value >> count & 1));
        if (++bits->count < 8)
            continue;
        if (!bytes_add(bits->out, bits->waiting))
            return false;
        bits->waiting = 0;
        bits->count = 0;
    }
    return true;
}

/* Fills the last byte with zeros. */
static bool bits_end(struct bits *bits)
{
    return bits->count == 0 || bits_add(bits, 0, 8 - bits->count);
}

static bool read_bit(const uint8_t *data, size_t length, size_t *at, unsigned *bit)
{
    if (*at >= length * 8)
        return false;
    *bit = data[*at / 8] >> (7 - *at % 8) & 1;
    ++*at;
    return true;
}

static unsigned bit_length(uint64_t value)
{
    unsigned length = 0;

    for (; value > 0; value >>= 1)
        length++;
    return length;
}

/* Elias's gamma code: as many zeros as the number has further bits, then the number, from 1. */
bool gamma_pack(const uint64_t *numbers, size_t count, struct bytes *out)
{
    struct bits bits = { out, 0, 0 };

    for (size_t number = 0; number < count; number++) {
        unsigned length = bit_length(numbers[number]);

        if (length == 0 || !bits_add(&bits, 0, length - 1) ||
            !bits_add(&bits, numbers[number], length))
            return false;
    }
    return bits_end(&bits);
}

/* Reads so many numbers; false if the stream ends before. */
bool gamma_unpack(const uint8_t *data, size_t length, uint64_t *numbers, size_t count)
{
    size_t at = 0;

    for (size_t number = 0; number < count; number++) {
        unsigned zeros = 0, bit = 0;

        while (bit == 0) {
            if (!read_bit(data, length, &at, &bit))
                return false;
            zeros += bit == 0;
            if (zeros > 63)
                return false;
        }
        numbers[number] = 1;
        for (; zeros > 0; zeros--) {
            if (!read_bit(data, length, &at, &bit))
                return false;
            numbers[number] = numbers[number] << 1 | bit;
        }
    }
    return true;
}

/* Rice's code: the high part as so many ones and a zero, then the low bits. */
bool rice_pack(const uint64_t *numbers, size_t count, unsigned low_bits, struct bytes *out)
{
    struct bits bits = { out, 0, 0 };

    for (size_t number = 0; number < count; number++) {
        uint64_t high = numbers[number] >> low_bits;

        /* A code of this length is worse than any other. */
        if (high > 1000)
            return false;
        for (; high > 0; high--) {
            if (!bits_add(&bits, 1, 1))
                return false;
        }
        if (!bits_add(&bits, 0, 1) || !bits_add(&bits, numbers[number], low_bits))
            return false;
    }
    return bits_end(&bits);
}

/* The number of low bits with which Rice's code is shortest. */
unsigned rice_best_bits(const uint64_t *numbers, size_t count)
{
    unsigned best = 0;
    uint64_t shortest = UINT64_MAX;

    for (unsigned low_bits = 0; low_bits < 32; low_bits++) {
        uint64_t length = 0;

        for (size_t number = 0; number < count; number++)
            length += (numbers[number] >> low_bits) + 1 + low_bits;
        if (length < shortest) {
            shortest = length;
            best = low_bits;
        }
    }
    return best;
}

bool rice_unpack(const uint8_t *data, size_t length, unsigned low_bits, uint64_t *numbers,
                 size_t count)
{
    size_t at = 0;

    for (size_t number = 0; number < count; number++) {
        unsigned bit;

        numbers[number] = 0;
        while (read_bit(data, length, &at, &bit) && bit == 1)
            numbers[number]++;
        for (unsigned low = 0; low < low_bits; low++) {
            if (!read_bit(data, length, &at, &bit))
                return false;
            numbers[number] = numbers[number] << 1 | bit;
        }
    }
    return true;
}
