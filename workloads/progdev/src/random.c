/* Random numbers of several distributions, and what is known of samples. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define PI 3.14159265358979323846
#define BAR_WIDTH 40
#define BINS_MAX 64

static uint64_t rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

/* SplitMix64, which makes a state without a pattern from any seed. */
void random_seed(struct random *random, uint64_t seed)
{
    memset(random, 0, sizeof(*random));
    for (unsigned word = 0; word < 4; word++) {
        uint64_t value = seed += 0x9e3779b97f4a7c15u;

        value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
        value = (value ^ value >> 27) * 0x94d049bb133111ebu;
        random->state[word] = value ^ value >> 31;
    }
}

/* xoshiro256**, by Blackman and Vigna. */
uint64_t random_next(struct random *random)
{
    uint64_t *state = random->state;
    uint64_t result = rotate(state[1] * 5, 7) * 9, kept = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= kept;
    state[3] = rotate(state[3], 45);
    return result;
}

/* From 0 to below a bound, each equally likely: numbers of an incomplete range are refused. */
uint64_t random_below(struct random *random, uint64_t bound)
{
    uint64_t refused, value;

    if (bound == 0)
        return 0;
    refused = -bound % bound;
    do {
        value = random_next(random);
    } while (value < refused);
    return value % bound;
}

/* From 0 to below 1, in steps of 2^-53. */
double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

/* By the method of Box and Muller, which makes two at a time. */
double random_normal(struct random *random)
{
    double radius, angle;

    if (random->has_spare) {
        random->has_spare = false;
        return random->spare;
    }
    radius = sqrt(-2.0 * log(1.0 - random_unit(random)));
    angle = 2.0 * PI * random_unit(random);
    random->spare = radius * sin(angle);
    random->has_spare = true;
    return radius * cos(angle);
}

double random_exponential(struct random *random, double rate)
{
    return -log(1.0 - random_unit(random)) / rate;
}

/* By Knuth's product of numbers; a large mean is the sum of smaller ones. */
unsigned random_poisson(struct random *random, double mean)
{
    unsigned count = 0;

    while (mean > 0) {
        double part = mean < 30 ? mean : 30, limit = exp(-part), product = random_unit(random);

        while (product > limit) {
            product *= random_unit(random);
            count++;
        }
        mean -= part;
    }
    return count;
}

/* The method of Fisher and Yates: all orders are equally likely. */
void random_shuffle(struct random *random, size_t *items, size_t count)
{
    for (size_t left = count; left > 1; left--) {
        size_t chosen = (size_t)random_below(random, left), kept = items[left - 1];

        items[left - 1] = items[chosen];
        items[chosen] = kept;
    }
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

/* A sum with the rounding error of each step carried on, by Kahan and Neumaier. */
struct sum {
    double total;
    double error;
};

static void sum_add(struct sum *sum, double value)
{
    double total = sum->total + value;

    if (fabs(sum->total) >= fabs(value))
        sum->error += sum->total - total + value;
    else
        sum->error += value - total + sum->total;
    sum->total = total;
}

static double sum_of(const struct sum *sum)
{
    return sum->total + sum->error;
}

/* The value below which a part of a sorted sample is, between its neighbours. */
double quantile(const double *sorted, size_t count, double part)
{
    double place = part * (double)(count - 1);
    size_t below = (size_t)place;

    if (count == 0 || part < 0 || part > 1)
        return NAN;
    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

bool summarise(const double *values, size_t count, struct summary *summary)
{
    struct sum first = { 0, 0 }, second = { 0, 0 }, third = { 0, 0 };
    double *sorted;

    memset(summary, 0, sizeof(*summary));
    summary->count = count;
    if (count == 0)
        return false;
    sorted = malloc(count * sizeof(*sorted));
    if (sorted == NULL)
        return false;
    memcpy(sorted, values, count * sizeof(*sorted));
    sort_quick(sorted, count, sizeof(*sorted), by_value);
    for (size_t place = 0; place < count; place++)
        sum_add(&first, values[place]);
    summary->mean = sum_of(&first) / (double)count;
    for (size_t place = 0; place < count; place++) {
        double far = values[place] - summary->mean;

        sum_add(&second, far * far);
        sum_add(&third, far * far * far);
    }
    summary->minimum = sorted[0];
    summary->maximum = sorted[count - 1];
    summary->median = quantile(sorted, count, 0.5);
    if (count > 1)
        summary->deviation = sqrt(sum_of(&second) / (double)(count - 1));
    if (summary->deviation > 0)
        summary->skewness = sum_of(&third) / (double)count / pow(summary->deviation, 3);
    free(sorted);
    return true;
}

/* Pearson's coefficient; not a number if a sample does not vary. */
double correlation(const double *x, const double *y, size_t count)
{
    double mean_x = 0, mean_y = 0, both = 0, square_x = 0, square_y = 0;

    for (size_t place = 0; place < count; place++) {
        double far_x = x[place] - mean_x, far_y = y[place] - mean_y;
        double part = 1.0 / (double)(place + 1);

        mean_x += far_x * part;
        mean_y += far_y * part;
        both += far_x * (y[place] - mean_y);
        square_x += far_x * (x[place] - mean_x);
        square_y += far_y * (y[place] - mean_y);
    }
    if (square_x <= 0 || square_y <= 0)
        return NAN;
    return both / sqrt(square_x * square_y);
}

double chi_square(const uint64_t *observed, const double *expected, size_t count)
{
    double sum = 0;

    for (size_t place = 0; place < count; place++) {
        double difference = (double)observed[place] - expected[place];

        if (expected[place] > 0)
            sum += difference * difference / expected[place];
    }
    return sum;
}

/* How far a sample is from being even between 0 and 1; sorts it. */
double kolmogorov_distance(double *values, size_t count)
{
    double farthest = 0;

    sort_heap(values, count, sizeof(*values), by_value);
    for (size_t place = 0; place < count; place++) {
        double below = values[place] - (double)place / (double)count;
        double above = (double)(place + 1) / (double)count - values[place];

        farthest = fmax(farthest, fmax(below, above));
    }
    return farthest;
}

static bool print_bar(struct text *out, double low, double high, size_t count, size_t most)
{
    size_t width = most == 0 ? 0 : (count * BAR_WIDTH + most - 1) / most;

    if (!text_add_format(out, "%8.3f - %8.3f %6zu ", low, high, count))
        return false;
    for (; width > 0; width--) {
        if (!text_add_char(out, '#'))
            return false;
    }
    return text_add_char(out, '\n');
}

/* Bars of equal ranges from the smallest to the largest value. */
bool histogram_print(const double *values, size_t count, size_t bins, struct text *out)
{
    size_t counts[BINS_MAX] = { 0 }, most = 0;
    double low = DBL_MAX, high = -DBL_MAX, width;
    bool is_fine = true;

    if (count == 0 || bins == 0 || bins > BINS_MAX)
        return false;
    for (size_t place = 0; place < count; place++) {
        low = fmin(low, values[place]);
        high = fmax(high, values[place]);
    }
    width = (high - low) / (double)bins;
    for (size_t place = 0; place < count; place++) {
        size_t bin = width > 0 ? (size_t)((values[place] - low) / width) : 0;

        bin = bin < bins ? bin : bins - 1;
        if (++counts[bin] > most)
            most = counts[bin];
    }
    for (size_t bin = 0; is_fine && bin < bins; bin++)
        is_fine = print_bar(out, low + (double)bin * width, low + (double)(bin + 1) * width,
                            counts[bin], most);
    return is_fine;
}

/* The straight line with the least squares of differences. */
bool fit_line(const double *x, const double *y, size_t count, struct line_fit *fit)
{
    struct sum sum_x = { 0, 0 }, sum_y = { 0, 0 };
    double mean_x, mean_y, both = 0, square = 0, rest = 0;

    if (count < 3)
        return false;
    for (size_t place = 0; place < count; place++) {
        sum_add(&sum_x, x[place]);
        sum_add(&sum_y, y[place]);
    }
    mean_x = sum_of(&sum_x) / (double)count;
    mean_y = sum_of(&sum_y) / (double)count;
    for (size_t place = 0; place < count; place++) {
        both += (x[place] - mean_x) * (y[place] - mean_y);
        square += (x[place] - mean_x) * (x[place] - mean_x);
    }
    if (square <= 0)
        return false;
    fit->slope = both / square;
    fit->intercept = mean_y - fit->slope * mean_x;
    for (size_t place = 0; place < count; place++) {
        double off = y[place] - fit->intercept - fit->slope * x[place];

        rest += off * off;
    }
    fit->deviation = sqrt(rest / (double)(count - 2));
    fit->slope_error = fit->deviation / sqrt(square);
    return true;
}

/* An interval of the mean by Efron's bootstrap: means of samples that are drawn from the sample. */
bool bootstrap_mean(struct random *random, const double *values, size_t count, size_t rounds,
                    double level, double *low, double *high)
{
    double *means = malloc((rounds + 1) * sizeof(*means));

    if (means == NULL || count == 0 || rounds == 0) {
        free(means);
        return false;
    }
    for (size_t round = 0; round < rounds; round++) {
        struct sum sum = { 0, 0 };

        for (size_t draw = 0; draw < count; draw++)
            sum_add(&sum, values[random_below(random, count)]);
        means[round] = sum_of(&sum) / (double)count;
    }
    sort_merge(means, rounds, sizeof(*means), by_value);
    *low = quantile(means, rounds, (1 - level) / 2);
    *high = quantile(means, rounds, (1 + level) / 2);
    free(means);
    return true;
}

/* A sample of at most `capacity` values of a stream, each equally likely: Vitter's reservoir. */
void reservoir_add(struct random *random, double *kept, size_t capacity, size_t *seen,
                   double value)
{
    uint64_t place = *seen;

    ++*seen;
    if (place >= capacity)
        place = random_below(random, *seen);
    if (place < capacity)
        kept[place] = value;
}

/* How often a sum of so many coins comes, by the recurrence of binomial coefficients. */
double binomial(unsigned tries, unsigned hits, double chance)
{
    double logarithm = 0;

    if (hits > tries || chance < 0 || chance > 1)
        return 0;
    if (chance == 0 || chance == 1)
        return hits == (chance == 0 ? 0 : tries);
    for (unsigned hit = 1; hit <= hits; hit++)
        logarithm += log((double)(tries - hits + hit) / (double)hit);
    logarithm += hits * log(chance) + (tries - hits) * log1p(-chance);
    return exp(logarithm);
}

/* A walk that is reflected at 0; returns how often it was there. */
size_t random_walk(struct random *random, size_t steps, int64_t *farthest)
{
    int64_t place = 0;
    size_t visits = 0;

    *farthest = 0;
    for (size_t step = 0; step < steps; step++) {
        bool up = random_next(random) >> 63;

        place += up || place == 0 ? 1 : -1;
        visits += place == 0;
        if (place > *farthest)
            *farthest = place;
    }
    return visits;
}

/* The area of a quarter of a circle, by points that fall into it. */
double random_pi(struct random *random, size_t points)
{
    size_t inside = 0;

    for (size_t point = 0; point < points; point++) {
        double x = random_unit(random), y = random_unit(random);

        inside += x * x + y * y < 1;
    }
    return 4.0 * (double)inside / (double)points;
}
