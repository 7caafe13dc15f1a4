/* Whole numbers of any size, from zero: digits of 32 bits, the lowest first, none of them leading. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define BASE_BITS 32
/* The largest power of ten in a digit, and how many decimal digits that is. */
#define DECIMAL_CHUNK 1000000000u
#define DECIMAL_DIGITS 9
/* Shorter numbers are multiplied digit by digit. */
#define SHORT 24

void bignum_init(struct bignum *number)
{
    memset(number, 0, sizeof(*number));
}

void bignum_free(struct bignum *number)
{
    free(number->digits);
    bignum_init(number);
}

static bool reserve(struct bignum *number, size_t count)
{
    uint32_t *digits;

    if (count <= number->capacity)
        return true;
    digits = realloc(number->digits, count * sizeof(*digits));
    if (digits == NULL)
        return false;
    number->digits = digits;
    number->capacity = count;
    return true;
}

static void strip(struct bignum *number)
{
    while (number->count > 0 && number->digits[number->count - 1] == 0)
        number->count--;
}

bool bignum_set(struct bignum *number, uint64_t value)
{
    if (!reserve(number, 2))
        return false;
    number->digits[0] = (uint32_t)value;
    number->digits[1] = (uint32_t)(value >> BASE_BITS);
    number->count = 2;
    strip(number);
    return true;
}

bool bignum_copy(struct bignum *to, const struct bignum *from)
{
    if (to == from)
        return true;
    if (!reserve(to, from->count))
        return false;
    if (from->count > 0)
        memcpy(to->digits, from->digits, from->count * sizeof(*to->digits));
    to->count = from->count;
    return true;
}

/* Gives `to` what `from` has, and frees what `to` had. */
static void move(struct bignum *to, struct bignum *from)
{
    bignum_free(to);
    *to = *from;
    bignum_init(from);
}

/* number = number * factor + added, in place. */
static bool scale(struct bignum *number, uint32_t factor, uint32_t added)
{
    uint64_t carry = added;

    for (size_t place = 0; place < number->count; place++) {
        carry += (uint64_t)number->digits[place] * factor;
        number->digits[place] = (uint32_t)carry;
        carry >>= BASE_BITS;
    }
    if (carry == 0)
        return true;
    if (!reserve(number, number->count + 1))
        return false;
    number->digits[number->count++] = (uint32_t)carry;
    return true;
}

/* number = number / divisor, in place; returns the rest. */
static uint32_t shrink(struct bignum *number, uint32_t divisor)
{
    uint64_t rest = 0;

    for (size_t place = number->count; place-- > 0;) {
        rest = rest << BASE_BITS | number->digits[place];
        number->digits[place] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    strip(number);
    return (uint32_t)rest;
}

bool bignum_parse(struct bignum *number, const char *decimal)
{
    if (*decimal == '\0' || !bignum_set(number, 0))
        return false;
    for (; *decimal != '\0'; decimal++) {
        if (!isdigit((unsigned char)*decimal))
            return false;
        if (!scale(number, 10, (uint32_t)(*decimal - '0')))
            return false;
    }
    return true;
}

bool bignum_print(const struct bignum *number, struct text *out)
{
    struct bignum rest;
    uint32_t *chunks;
    size_t count = 0;
    bool is_fine = true;

    bignum_init(&rest);
    chunks = malloc((number->count * BASE_BITS / 29 + 2) * sizeof(*chunks));
    if (chunks == NULL || !bignum_copy(&rest, number)) {
        free(chunks);
        return false;
    }
    do {
        chunks[count++] = shrink(&rest, DECIMAL_CHUNK);
    } while (rest.count > 0);
    is_fine = text_add_format(out, "%u", chunks[count - 1]);
    for (size_t chunk = count - 1; is_fine && chunk-- > 0;)
        is_fine = text_add_format(out, "%0*u", DECIMAL_DIGITS, chunks[chunk]);
    free(chunks);
    bignum_free(&rest);
    return is_fine;
}

int bignum_compare(const struct bignum *one, const struct bignum *other)
{
    if (one->count != other->count)
        return one->count < other->count ? -1 : 1;
    for (size_t place = one->count; place-- > 0;) {
        if (one->digits[place] != other->digits[place])
            return one->digits[place] < other->digits[place] ? -1 : 1;
    }
    return 0;
}

bool bignum_add(struct bignum *sum, const struct bignum *one, const struct bignum *other)
{
    const struct bignum *longer = one->count >= other->count ? one : other;
    const struct bignum *shorter = longer == one ? other : one;
    struct bignum result;
    uint64_t carry = 0;

    bignum_init(&result);
    if (!reserve(&result, longer->count + 1))
        return false;
    for (size_t place = 0; place < longer->count; place++) {
        carry += longer->digits[place];
        if (place < shorter->count)
            carry += shorter->digits[place];
        result.digits[place] = (uint32_t)carry;
        carry >>= BASE_BITS;
    }
    result.digits[longer->count] = (uint32_t)carry;
    result.count = longer->count + 1;
    strip(&result);
    move(sum, &result);
    return true;
}

/* False if the result would be below zero. */
bool bignum_subtract(struct bignum *rest, const struct bignum *one, const struct bignum *other)
{
    struct bignum result;
    uint64_t borrow = 0;

    if (bignum_compare(one, other) < 0)
        return false;
    bignum_init(&result);
    if (!reserve(&result, one->count + 1))
        return false;
    for (size_t place = 0; place < one->count; place++) {
        uint64_t taken = borrow + (place < other->count ? other->digits[place] : 0);

        borrow = one->digits[place] < taken;
        result.digits[place] = (uint32_t)(one->digits[place] - taken);
    }
    result.count = one->count;
    strip(&result);
    move(rest, &result);
    return true;
}

static bool multiply_plain(struct bignum *product, const struct bignum *one,
                           const struct bignum *other)
{
    struct bignum result;
    size_t count = one->count + other->count;

    bignum_init(&result);
    if (!reserve(&result, count + 1))
        return false;
    memset(result.digits, 0, (count + 1) * sizeof(*result.digits));
    for (size_t low = 0; low < one->count; low++) {
        uint64_t carry = 0;

        for (size_t high = 0; high < other->count; high++) {
            carry += (uint64_t)one->digits[low] * other->digits[high] + result.digits[low + high];
            result.digits[low + high] = (uint32_t)carry;
            carry >>= BASE_BITS;
        }
        result.digits[low + other->count] = (uint32_t)carry;
    }
    result.count = count;
    strip(&result);
    move(product, &result);
    return true;
}

/* A view of some digits of a number, which is not freed. */
static struct bignum part(const struct bignum *number, size_t from, size_t count)
{
    struct bignum view = { NULL, 0, 0 };

    if (from < number->count) {
        view.digits = number->digits + from;
        view.count = number->count - from < count ? number->count - from : count;
        strip(&view);
    }
    return view;
}

/* sum = sum + added * base^shift, in place. */
static bool add_shifted(struct bignum *sum, const struct bignum *added, size_t shift)
{
    size_t count = added->count + shift;
    uint64_t carry = 0;

    count = (count > sum->count ? count : sum->count) + 1;
    if (!reserve(sum, count))
        return false;
    memset(sum->digits + sum->count, 0, (count - sum->count) * sizeof(*sum->digits));
    for (size_t place = shift; place < count; place++) {
        carry += sum->digits[place];
        if (place - shift < added->count)
            carry += added->digits[place - shift];
        sum->digits[place] = (uint32_t)carry;
        carry >>= BASE_BITS;
    }
    sum->count = count;
    strip(sum);
    return true;
}

/* By Karatsuba's three products of halves, instead of four. */
bool bignum_multiply(struct bignum *product, const struct bignum *one, const struct bignum *other)
{
    size_t half = (one->count > other->count ? one->count : other->count) / 2;
    struct bignum low_one = part(one, 0, half), high_one = part(one, half, SIZE_MAX);
    struct bignum low_other = part(other, 0, half), high_other = part(other, half, SIZE_MAX);
    struct bignum low, high, middle, sum_one, sum_other;
    bool is_fine;

    if (one->count < SHORT || other->count < SHORT)
        return multiply_plain(product, one, other);
    bignum_init(&low);
    bignum_init(&high);
    bignum_init(&middle);
    bignum_init(&sum_one);
    bignum_init(&sum_other);
    is_fine = bignum_multiply(&low, &low_one, &low_other) &&
              bignum_multiply(&high, &high_one, &high_other) &&
              bignum_add(&sum_one, &low_one, &high_one) &&
              bignum_add(&sum_other, &low_other, &high_other) &&
              bignum_multiply(&middle, &sum_one, &sum_other) &&
              bignum_subtract(&middle, &middle, &low) && bignum_subtract(&middle, &middle, &high) &&
              add_shifted(&low, &middle, half) && add_shifted(&low, &high, 2 * half);
    if (is_fine)
        move(product, &low);
    bignum_free(&low);
    bignum_free(&high);
    bignum_free(&middle);
    bignum_free(&sum_one);
    bignum_free(&sum_other);
    return is_fine;
}

static bool bit_of(const struct bignum *number, size_t bit)
{
    return number->digits[bit / BASE_BITS] >> bit % BASE_BITS & 1;
}

/* Long division, a bit at a time; by a single digit at once. */
bool bignum_divide(struct bignum *quotient, struct bignum *rest, const struct bignum *one,
                   const struct bignum *other)
{
    struct bignum result, left;
    bool is_fine = true;

    if (other->count == 0)
        return false;
    bignum_init(&result);
    bignum_init(&left);
    if (other->count == 1) {
        uint32_t divisor = other->digits[0];

        is_fine = bignum_copy(&result, one) && bignum_set(&left, shrink(&result, divisor));
    } else {
        is_fine = reserve(&result, one->count + 1);
        if (is_fine)
            memset(result.digits, 0, (one->count + 1) * sizeof(*result.digits));
        for (size_t bit = one->count * BASE_BITS; is_fine && bit-- > 0;) {
            is_fine = scale(&left, 2, bit_of(one, bit));
            if (is_fine && bignum_compare(&left, other) >= 0) {
                is_fine = bignum_subtract(&left, &left, other);
                result.digits[bit / BASE_BITS] |= (uint32_t)1 << bit % BASE_BITS;
            }
        }
        result.count = one->count;
        strip(&result);
    }
    if (is_fine) {
        move(quotient, &result);
        move(rest, &left);
    }
    bignum_free(&result);
    bignum_free(&left);
    return is_fine;
}

bool bignum_power(struct bignum *power, const struct bignum *base, unsigned exponent)
{
    struct bignum square, result;
    bool is_fine;

    bignum_init(&square);
    bignum_init(&result);
    is_fine = bignum_set(&result, 1) && bignum_copy(&square, base);
    for (; is_fine && exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            is_fine = bignum_multiply(&result, &result, &square);
        if (is_fine && exponent > 1)
            is_fine = bignum_multiply(&square, &square, &square);
    }
    if (is_fine)
        move(power, &result);
    bignum_free(&square);
    bignum_free(&result);
    return is_fine;
}

bool bignum_factorial(struct bignum *number, unsigned of)
{
    bool is_fine = bignum_set(number, 1);

    for (unsigned factor = 2; is_fine && factor <= of; factor++)
        is_fine = scale(number, factor, 0);
    return is_fine;
}

bool bignum_power_mod(struct bignum *power, const struct bignum *base,
                      const struct bignum *exponent, const struct bignum *modulus)
{
    struct bignum result, unused;
    bool is_fine;

    bignum_init(&result);
    bignum_init(&unused);
    is_fine = bignum_set(&result, 1);
    for (size_t bit = exponent->count * BASE_BITS; is_fine && bit-- > 0;) {
        is_fine = bignum_multiply(&result, &result, &result) &&
                  bignum_divide(&unused, &result, &result, modulus);
        if (is_fine && bit_of(exponent, bit))
            is_fine = bignum_multiply(&result, &result, base) &&
                      bignum_divide(&unused, &result, &result, modulus);
    }
    if (is_fine)
        move(power, &result);
    bignum_free(&result);
    bignum_free(&unused);
    return is_fine;
}

bool bignum_gcd(struct bignum *divisor, const struct bignum *one, const struct bignum *other)
{
    struct bignum a, b, unused;
    bool is_fine;

    bignum_init(&a);
    bignum_init(&b);
    bignum_init(&unused);
    is_fine = bignum_copy(&a, one) && bignum_copy(&b, other);
    while (is_fine && b.count > 0) {
        struct bignum kept = a;

        a = b;
        b = kept;
        is_fine = bignum_divide(&unused, &b, &b, &a);
    }
    if (is_fine)
        move(divisor, &a);
    bignum_free(&a);
    bignum_free(&b);
    bignum_free(&unused);
    return is_fine;
}

/* A power of two that is above the square root of a number; 0 for 0. */
static bool power_above(struct bignum *power, const struct bignum *number)
{
    size_t half = (number->count + 1) / 2;

    if (!bignum_set(power, 0) || !reserve(power, half + 1))
        return false;
    if (number->count == 0)
        return true;
    memset(power->digits, 0, (half + 1) * sizeof(*power->digits));
    power->digits[half] = 1;
    power->count = half + 1;
    return true;
}

/* Newton's iteration from above: each step is nearer, until one is not. */
bool bignum_square_root(struct bignum *root, const struct bignum *number)
{
    struct bignum guess, next, unused;
    bool is_fine;

    bignum_init(&guess);
    bignum_init(&next);
    bignum_init(&unused);
    is_fine = power_above(&guess, number);
    while (is_fine && guess.count > 0) {
        is_fine = bignum_divide(&next, &unused, number, &guess) &&
                  bignum_add(&next, &next, &guess);
        if (is_fine)
            shrink(&next, 2);
        if (!is_fine || bignum_compare(&next, &guess) >= 0)
            break;
        move(&guess, &next);
    }
    if (is_fine)
        move(root, &guess);
    bignum_free(&guess);
    bignum_free(&next);
    bignum_free(&unused);
    return is_fine;
}
