/* Check sums: CRC-32, Adler-32, MD5, SHA-256, HMAC and SipHash. */
#include <string.h>

#include "kit.h"

static uint32_t rotate_left(uint32_t value, unsigned bits)
{
    return value << bits | value >> (32 - bits);
}

static uint32_t rotate_right(uint32_t value, unsigned bits)
{
    return value >> bits | value << (32 - bits);
}

static uint32_t read_big(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
           bytes[3];
}

static uint32_t read_little(const uint8_t *bytes)
{
    return (uint32_t)bytes[3] << 24 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[1] << 8 |
           bytes[0];
}

static void write_big(uint8_t *bytes, uint32_t value)
{
    for (unsigned byte = 0; byte < 4; byte++)
        bytes[byte] = (uint8_t)(value >> (24 - 8 * byte));
}

static void write_little(uint8_t *bytes, uint32_t value)
{
    for (unsigned byte = 0; byte < 4; byte++)
        bytes[byte] = (uint8_t)(value >> (8 * byte));
}

static void print_hex(const uint8_t *bytes, size_t count, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t byte = 0; byte < count; byte++) {
        hex[2 * byte] = digits[bytes[byte] >> 4];
        hex[2 * byte + 1] = digits[bytes[byte] & 15];
    }
    hex[2 * count] = '\0';
}

/* The polynomial of Ethernet, by a table of all bytes. */
uint32_t crc32_of(const void *bytes, size_t length)
{
    static uint32_t table[256];
    const uint8_t *from = bytes;
    uint32_t sum = 0xffffffffu;

    if (table[1] == 0) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = byte;

            for (unsigned bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table[byte] = value;
        }
    }
    while (length-- > 0)
        sum = sum >> 8 ^ table[(sum ^ *from++) & 0xff];
    return ~sum;
}

/* Sums are reduced as rarely as they can be: after 5,552 bytes. */
uint32_t adler32_of(const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    uint32_t low = 1, high = 0;

    while (length > 0) {
        size_t here = length < 5552 ? length : 5552;

        length -= here;
        while (here-- > 0) {
            low += *from++;
            high += low;
        }
        low %= 65521;
        high %= 65521;
    }
    return high << 16 | low;
}

static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

void sha256_init(struct sha256 *digest)
{
    static const uint32_t first[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };

    memset(digest, 0, sizeof(*digest));
    memcpy(digest->state, first, sizeof(first));
}

static void sha256_block(struct sha256 *digest, const uint8_t block[64])
{
    uint32_t words[64], state[8];

    for (unsigned word = 0; word < 16; word++)
        words[word] = read_big(block + 4 * word);
    for (unsigned word = 16; word < 64; word++) {
        uint32_t early = words[word - 15], late = words[word - 2];
        uint32_t one = rotate_right(early, 7) ^ rotate_right(early, 18) ^ early >> 3;
        uint32_t other = rotate_right(late, 17) ^ rotate_right(late, 19) ^ late >> 10;

        words[word] = words[word - 16] + one + words[word - 7] + other;
    }
    memcpy(state, digest->state, sizeof(state));
    for (unsigned round = 0; round < 64; round++) {
        uint32_t e = state[4], a = state[0];
        uint32_t mix = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t choice = (e & state[5]) ^ (~e & state[6]);
        uint32_t one = state[7] + mix + choice + sha256_constants[round] + words[round];
        uint32_t other = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                         ((a & state[1]) ^ (a & state[2]) ^ (state[1] & state[2]));

        memmove(state + 1, state, 7 * sizeof(state[0]));
        state[4] += one;
        state[0] = one + other;
    }
    for (unsigned word = 0; word < 8; word++)
        digest->state[word] += state[word];
}

void sha256_add(struct sha256 *digest, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    digest->length += length;
    while (length > 0) {
        size_t here = 64 - digest->used;

        here = here < length ? here : length;
        memcpy(digest->block + digest->used, from, here);
        digest->used += here;
        from += here;
        length -= here;
        if (digest->used == 64) {
            sha256_block(digest, digest->block);
            digest->used = 0;
        }
    }
}

void sha256_end(struct sha256 *digest, uint8_t out[32])
{
    uint64_t bits = digest->length * 8;
    uint8_t length[8], one = 0x80, zero = 0;

    sha256_add(digest, &one, 1);
    while (digest->used != 56)
        sha256_add(digest, &zero, 1);
    write_big(length, (uint32_t)(bits >> 32));
    write_big(length + 4, (uint32_t)bits);
    sha256_add(digest, length, 8);
    for (unsigned word = 0; word < 8; word++)
        write_big(out + 4 * word, digest->state[word]);
}

void sha256_of(const void *bytes, size_t length, char hex[65])
{
    struct sha256 digest;
    uint8_t out[32];

    sha256_init(&digest);
    sha256_add(&digest, bytes, length);
    sha256_end(&digest, out);
    print_hex(out, 32, hex);
}

/* A key that is longer than a block is replaced by its digest. */
void hmac_sha256_of(const void *key, size_t key_length, const void *bytes, size_t length,
                    char hex[65])
{
    struct sha256 inner, outer;
    uint8_t block[64] = { 0 }, out[32];

    if (key_length > 64) {
        sha256_init(&inner);
        sha256_add(&inner, key, key_length);
        sha256_end(&inner, block);
    } else {
        memcpy(block, key, key_length);
    }
    for (unsigned byte = 0; byte < 64; byte++)
        block[byte] ^= 0x36;
    sha256_init(&inner);
    sha256_add(&inner, block, 64);
    sha256_add(&inner, bytes, length);
    sha256_end(&inner, out);
    for (unsigned byte = 0; byte < 64; byte++)
        block[byte] ^= 0x36 ^ 0x5c;
    sha256_init(&outer);
    sha256_add(&outer, block, 64);
    sha256_add(&outer, out, 32);
    sha256_end(&outer, out);
    print_hex(out, 32, hex);
}

static const uint8_t md5_shifts[4][4] = {
    { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 },
};

static const uint32_t md5_constants[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
    0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
    0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
    0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
    0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
    0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
    0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
    0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
    0xeb86d391,
};

static void md5_block(uint32_t state[4], const uint8_t block[64])
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];

    for (unsigned round = 0; round < 64; round++) {
        uint32_t mix, kept = d;
        unsigned word;

        switch (round / 16) {
        case 0: mix = (b & c) | (~b & d); word = round; break;
        case 1: mix = (d & b) | (~d & c); word = (5 * round + 1) % 16; break;
        case 2: mix = b ^ c ^ d; word = (3 * round + 5) % 16; break;
        default: mix = c ^ (b | ~d); word = 7 * round % 16; break;
        }
        mix += a + md5_constants[round] + read_little(block + 4 * word);
        d = c;
        c = b;
        b += rotate_left(mix, md5_shifts[round / 16][round % 4]);
        a = kept;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void md5_of(const void *bytes, size_t length, char hex[33])
{
    uint32_t state[4] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 };
    const uint8_t *from = bytes;
    size_t rest = length % 64, last = rest < 56 ? 64 : 128;
    uint8_t tail[128] = { 0 }, out[16];

    for (size_t at = 0; at + 64 <= length; at += 64)
        md5_block(state, from + at);
    if (rest > 0)
        memcpy(tail, from + length - rest, rest);
    tail[rest] = 0x80;
    write_little(tail + last - 8, (uint32_t)(length << 3));
    write_little(tail + last - 4, (uint32_t)((uint64_t)length >> 29));
    for (size_t at = 0; at < last; at += 64)
        md5_block(state, tail + at);
    for (unsigned word = 0; word < 4; word++)
        write_little(out + 4 * word, state[word]);
    print_hex(out, 16, hex);
}

static uint64_t rotate_long(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_long(v[1], 13) ^ v[0];
    v[3] = rotate_long(v[3], 16) ^ v[2];
    v[0] = rotate_long(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_long(v[1], 17) ^ v[2];
    v[3] = rotate_long(v[3], 21) ^ v[0];
    v[2] = rotate_long(v[2], 32);
}

static uint64_t read_long(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;

    for (size_t byte = 0; byte < count; byte++)
        value |= (uint64_t)bytes[byte] << (8 * byte);
    return value;
}

/* SipHash-2-4: two rounds for each word, four at the end. */
uint64_t siphash_of(const uint8_t key[16], const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    uint64_t low = read_long(key, 8), high = read_long(key + 8, 8);
    uint64_t v[4] = {
        low ^ 0x736f6d6570736575u, high ^ 0x646f72616e646f6du,
        low ^ 0x6c7967656e657261u, high ^ 0x7465646279746573u,
    };

    for (size_t at = 0; at <= length; at += 8) {
        size_t here = length - at < 8 ? length - at : 8;
        uint64_t word = read_long(from + at, here);

        if (here < 8)
            word |= (uint64_t)length << 56;
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (unsigned round = 0; round < 4; round++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static void sha1_block(uint32_t state[5], const uint8_t block[64])
{
    uint32_t words[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

    for (unsigned word = 0; word < 16; word++)
        words[word] = read_big(block + 4 * word);
    for (unsigned word = 16; word < 80; word++)
        words[word] = rotate_left(
            words[word - 3] ^ words[word - 8] ^ words[word - 14] ^ words[word - 16], 1);
    for (unsigned round = 0; round < 80; round++) {
        uint32_t mix, constant, next;

        if (round < 20) {
            mix = (b & c) | (~b & d);
            constant = 0x5a827999;
        } else if (round < 40) {
            mix = b ^ c ^ d;
            constant = 0x6ed9eba1;
        } else if (round < 60) {
            mix = (b & c) | (b & d) | (c & d);
            constant = 0x8f1bbcdc;
        } else {
            mix = b ^ c ^ d;
            constant = 0xca62c1d6;
        }
        next = rotate_left(a, 5) + mix + e + constant + words[round];
        e = d;
        d = c;
        c = rotate_left(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

void sha1_of(const void *bytes, size_t length, char hex[41])
{
    uint32_t state[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
    const uint8_t *from = bytes;
    size_t rest = length % 64, last = rest < 56 ? 64 : 128;
    uint8_t tail[128] = { 0 }, out[20];

    for (size_t at = 0; at + 64 <= length; at += 64)
        sha1_block(state, from + at);
    if (rest > 0)
        memcpy(tail, from + length - rest, rest);
    tail[rest] = 0x80;
    write_big(tail + last - 8, (uint32_t)((uint64_t)length >> 29));
    write_big(tail + last - 4, (uint32_t)(length << 3));
    for (size_t at = 0; at < last; at += 64)
        sha1_block(state, tail + at);
    for (unsigned word = 0; word < 5; word++)
        write_big(out + 4 * word, state[word]);
    print_hex(out, 20, hex);
}

/* The check sum of the Internet: the sum of 16-bit words with the carry added again. */
uint16_t internet_sum_of(const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    uint32_t sum = 0;

    for (size_t at = 0; at < length; at += 2) {
        sum += (uint32_t)from[at] << 8;
        if (at + 1 < length)
            sum += from[at + 1];
    }
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}
