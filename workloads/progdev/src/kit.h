/* A small library of tools: containers, text, numbers, compression, graphs and an interpreter. */
#ifndef KIT_H
#define KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* strings.c: strings that grow. */
struct text {
    char *bytes;
    size_t length;
    size_t capacity;
};

void text_init(struct text *text);
void text_free(struct text *text);
void text_clear(struct text *text);
bool text_add(struct text *text, const char *bytes, size_t length);
bool text_add_string(struct text *text, const char *string);
bool text_add_char(struct text *text, char character);
bool text_add_format(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void text_trim(struct text *text);
size_t text_replace(struct text *text, const char *old, const char *new_part);
char **text_split(const char *string, char separator, size_t *count);
void text_free_parts(char **parts, size_t count);
size_t text_distance(const char *one, const char *other);
const char *text_find(const char *string, const char *part);
bool text_is_glob_match(const char *pattern, const char *string);
void text_wrap(struct text *out, const char *string, size_t width);
bool text_encode_base64(struct text *out, const void *bytes, size_t length);
bool text_decode_base64(struct text *out, const char *string);

/* hash.c: a hash table from strings to numbers, with open addressing. */
struct hash_slot {
    char *key;
    int64_t value;
    uint32_t hash;
};

struct hash {
    struct hash_slot *slots;
    size_t capacity;
    size_t used;
};

typedef bool (*hash_visitor)(const char *key, int64_t value, void *context);

void hash_init(struct hash *hash);
void hash_free(struct hash *hash);
bool hash_put(struct hash *hash, const char *key, int64_t value);
bool hash_get(const struct hash *hash, const char *key, int64_t *value);
bool hash_add(struct hash *hash, const char *key, int64_t amount);
bool hash_remove(struct hash *hash, const char *key);
void hash_visit(const struct hash *hash, hash_visitor visitor, void *context);
size_t hash_longest_probe(const struct hash *hash);
size_t hash_sorted_keys(const struct hash *hash, const char ***keys);

bool hash_copy(struct hash *to, const struct hash *from);
bool hash_merge(struct hash *into, const struct hash *from);
size_t hash_retain(struct hash *hash, const struct hash *wanted);
bool hash_is_equal(const struct hash *one, const struct hash *other);
bool hash_print(const struct hash *hash, struct text *out);
bool hash_parse(struct hash *hash, const char *lines);
bool hash_print_top(const struct hash *hash, size_t most, struct text *out);
/* tree.c: a red-black tree of numbers. */
struct tree_node {
    int64_t key;
    int64_t value;
    struct tree_node *parent;
    struct tree_node *child[2];
    bool is_red;
};

struct tree {
    struct tree_node *root;
    size_t count;
};

void tree_init(struct tree *tree);
void tree_free(struct tree *tree);
bool tree_insert(struct tree *tree, int64_t key, int64_t value);
struct tree_node *tree_find(const struct tree *tree, int64_t key);
struct tree_node *tree_at_least(const struct tree *tree, int64_t key);
struct tree_node *tree_first(const struct tree *tree);
struct tree_node *tree_last(const struct tree *tree);
struct tree_node *tree_next(const struct tree_node *node);
struct tree_node *tree_previous(const struct tree_node *node);
bool tree_remove(struct tree *tree, int64_t key);
int tree_check(const struct tree *tree);
size_t tree_height(const struct tree *tree);

size_t tree_count_range(const struct tree *tree, int64_t low, int64_t high);
struct tree_node *tree_at_most(const struct tree *tree, int64_t key);
struct tree_node *tree_nearest(const struct tree *tree, int64_t key);
bool tree_balance(struct tree *tree);
bool tree_unite(struct tree *into, const struct tree *from);
size_t tree_count_common(const struct tree *one, const struct tree *other);
uint64_t tree_largest_gap(const struct tree *tree);
/* heap.c: a priority queue, and ways to sort. */
struct heap {
    int64_t *keys;
    void **items;
    size_t count;
    size_t capacity;
};

typedef int (*compare)(const void *one, const void *other);

void heap_init(struct heap *heap);
void heap_free(struct heap *heap);
bool heap_push(struct heap *heap, int64_t key, void *item);
bool heap_pop(struct heap *heap, int64_t *key, void **item);
bool heap_is_valid(const struct heap *heap);
void sort_insertion(void *base, size_t count, size_t width, compare compare);
bool sort_merge(void *base, size_t count, size_t width, compare compare);
void sort_heap(void *base, size_t count, size_t width, compare compare);
void sort_quick(void *base, size_t count, size_t width, compare compare);
void sort_radix(uint32_t *numbers, size_t count);
bool sort_is_sorted(const void *base, size_t count, size_t width, compare compare);
size_t sort_search(const void *key, const void *base, size_t count, size_t width, compare compare);
size_t sort_unique(void *base, size_t count, size_t width, compare compare);

void sort_select(void *base, size_t count, size_t width, size_t place, compare compare);
void sort_shell(void *base, size_t count, size_t width, compare compare);
uint64_t sort_count_inversions(uint32_t *numbers, size_t count);
/* matrix.c: matrices of real numbers. */
struct matrix {
    size_t rows;
    size_t columns;
    double *cells;
};

bool matrix_init(struct matrix *matrix, size_t rows, size_t columns);
void matrix_free(struct matrix *matrix);
double matrix_get(const struct matrix *matrix, size_t row, size_t column);
void matrix_set(struct matrix *matrix, size_t row, size_t column, double value);
bool matrix_copy(struct matrix *to, const struct matrix *from);
bool matrix_identity(struct matrix *matrix, size_t size);
bool matrix_multiply(struct matrix *product, const struct matrix *one, const struct matrix *other);
bool matrix_transpose(struct matrix *to, const struct matrix *from);
bool matrix_decompose(struct matrix *matrix, size_t *permutation, int *sign);
double matrix_determinant(const struct matrix *matrix);
bool matrix_solve(const struct matrix *matrix, const double *right, double *solution);
bool matrix_invert(struct matrix *inverse, const struct matrix *matrix);
size_t matrix_rank(const struct matrix *matrix);
bool matrix_power(struct matrix *power, const struct matrix *matrix, unsigned exponent);
double matrix_dominant_eigenvalue(const struct matrix *matrix, unsigned steps);
bool matrix_fit_polynomial(const double *x, const double *y, size_t count, size_t degree,
                           double *coefficients);

/* regex.c: regular expressions, as a set of states that is followed in parallel. */
struct regex;

struct regex *regex_compile(const char *pattern, const char **error);
void regex_free(struct regex *regex);
bool regex_is_match(const struct regex *regex, const char *string);
bool regex_search(const struct regex *regex, const char *string, size_t *start, size_t *length);
size_t regex_count(const struct regex *regex, const char *string);

/* lexer.c: the words of a small language. */
enum token_kind {
    TOKEN_END,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_NAME,
    TOKEN_LET,
    TOKEN_IF,
    TOKEN_ELSE,
    TOKEN_WHILE,
    TOKEN_FUNCTION,
    TOKEN_RETURN,
    TOKEN_PRINT,
    TOKEN_TRUE,
    TOKEN_FALSE,
    TOKEN_AND,
    TOKEN_OR,
    TOKEN_NOT,
    TOKEN_PLUS,
    TOKEN_MINUS,
    TOKEN_STAR,
    TOKEN_SLASH,
    TOKEN_PERCENT,
    TOKEN_ASSIGN,
    TOKEN_EQUAL,
    TOKEN_UNEQUAL,
    TOKEN_LESS,
    TOKEN_LESS_EQUAL,
    TOKEN_MORE,
    TOKEN_MORE_EQUAL,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_OPEN_BRACE,
    TOKEN_CLOSE_BRACE,
    TOKEN_COMMA,
    TOKEN_SEMICOLON,
    TOKEN_ERROR,
};

struct token {
    enum token_kind kind;
    const char *start;
    size_t length;
    int64_t number;
    unsigned line;
};

struct lexer {
    const char *at;
    unsigned line;
    const char *error;
};

void lexer_init(struct lexer *lexer, const char *source);
struct token lexer_next(struct lexer *lexer);
const char *token_name(enum token_kind kind);
bool token_text(const struct token *token, struct text *out);
size_t lexer_count(const char *source, size_t counts[TOKEN_ERROR + 1]);

bool lexer_format(const char *source, struct text *out);
bool lexer_is_balanced(const char *source);
bool lexer_count_names(const char *source, struct hash *names);
/* interp.c: a compiler of that language to byte code, and the machine that executes it. */
bool interp_run(const char *source, struct text *output, uint64_t steps_max, const char **error);

/* bignum.c: whole numbers of any size. */
struct bignum {
    uint32_t *digits;
    size_t count;
    size_t capacity;
};

void bignum_init(struct bignum *number);
void bignum_free(struct bignum *number);
bool bignum_set(struct bignum *number, uint64_t value);
bool bignum_copy(struct bignum *to, const struct bignum *from);
bool bignum_parse(struct bignum *number, const char *decimal);
bool bignum_print(const struct bignum *number, struct text *out);
int bignum_compare(const struct bignum *one, const struct bignum *other);
bool bignum_add(struct bignum *sum, const struct bignum *one, const struct bignum *other);
bool bignum_subtract(struct bignum *rest, const struct bignum *one, const struct bignum *other);
bool bignum_multiply(struct bignum *product, const struct bignum *one, const struct bignum *other);
bool bignum_divide(struct bignum *quotient, struct bignum *rest, const struct bignum *one,
                   const struct bignum *other);
bool bignum_power(struct bignum *power, const struct bignum *base, unsigned exponent);
bool bignum_factorial(struct bignum *number, unsigned of);
bool bignum_power_mod(struct bignum *power, const struct bignum *base,
                      const struct bignum *exponent, const struct bignum *modulus);
bool bignum_gcd(struct bignum *divisor, const struct bignum *one, const struct bignum *other);
bool bignum_square_root(struct bignum *root, const struct bignum *number);

/* calendar.c: days, dates and times without a clock. */
struct date {
    int year;
    int month;
    int day;
};

struct date_time {
    struct date date;
    int hour;
    int minute;
    int second;
};

bool calendar_is_leap(int year);
int calendar_days_in_month(int year, int month);
bool calendar_is_date(const struct date *date);
int64_t calendar_to_days(const struct date *date);
struct date calendar_from_days(int64_t days);
int calendar_weekday(const struct date *date);
int calendar_week(const struct date *date, int *year);
int calendar_day_of_year(const struct date *date);
struct date calendar_easter(int year);
struct date calendar_add_months(const struct date *date, int months);
int64_t calendar_to_seconds(const struct date_time *time);
struct date_time calendar_from_seconds(int64_t seconds);
bool calendar_parse(const char *string, struct date_time *time);
bool calendar_format(const struct date_time *time, const char *format, struct text *out);
bool calendar_print_month(int year, int month, struct text *out);
bool calendar_parse_duration(const char *string, int64_t *seconds);
bool calendar_print_duration(int64_t seconds, struct text *out);

int64_t calendar_working_days(const struct date *from, const struct date *to);
bool calendar_nth_weekday(int year, int month, int weekday, int n, struct date *date);
bool calendar_age(const struct date *from, const struct date *to, struct date *age);
int64_t calendar_julian_day(const struct date *date);
int calendar_moon_age(const struct date *date);
/* diff.c: what differs between two texts, line by line. */
enum edit_kind { EDIT_KEEP, EDIT_REMOVE, EDIT_INSERT };

struct edit {
    enum edit_kind kind;
    size_t old_line;
    size_t new_line;
};

struct edit_list {
    struct edit *edits;
    size_t count;
    size_t capacity;
};

bool diff_lines(const char *old_text, const char *new_text, struct edit_list *edits);
void diff_free(struct edit_list *edits);
bool diff_print(const char *old_text, const char *new_text, size_t context, struct text *out);
bool diff_apply(const char *old_text, const char *patch, struct text *out);
double diff_similarity(const char *one, const char *other);

bool diff_common(const char *one, const char *other, struct text *out);
bool diff_print_columns(const char *old_text, const char *new_text, size_t width, struct text *out);
/* digest.c: check sums. */
struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
    size_t used;
};

void sha256_init(struct sha256 *digest);
void sha256_add(struct sha256 *digest, const void *bytes, size_t length);
void sha256_end(struct sha256 *digest, uint8_t out[32]);
void sha256_of(const void *bytes, size_t length, char hex[65]);
void md5_of(const void *bytes, size_t length, char hex[33]);
uint32_t crc32_of(const void *bytes, size_t length);
uint32_t adler32_of(const void *bytes, size_t length);
uint64_t siphash_of(const uint8_t key[16], const void *bytes, size_t length);
void hmac_sha256_of(const void *key, size_t key_length, const void *bytes, size_t length,
                    char hex[65]);

void sha1_of(const void *bytes, size_t length, char hex[41]);
uint16_t internet_sum_of(const void *bytes, size_t length);
/* graph.c: directed graphs with lengths. */
struct edge {
    size_t from;
    size_t to;
    int64_t length;
};

struct graph {
    size_t nodes;
    struct edge *edges;
    size_t count;
    size_t capacity;
    size_t *first;
    bool is_indexed;
};

#define GRAPH_FAR INT64_MAX

bool graph_init(struct graph *graph, size_t nodes);
void graph_free(struct graph *graph);
bool graph_add(struct graph *graph, size_t from, size_t to, int64_t length);
bool graph_index(struct graph *graph);
bool graph_shortest(struct graph *graph, size_t from, int64_t *distances, size_t *previous);
bool graph_bellman_ford(const struct graph *graph, size_t from, int64_t *distances);
bool graph_all_pairs(const struct graph *graph, int64_t *distances);
bool graph_sort(struct graph *graph, size_t *order);
size_t graph_components(struct graph *graph, size_t *component);
size_t graph_strong_components(struct graph *graph, size_t *component);
int64_t graph_spanning_tree(const struct graph *graph, size_t *chosen, size_t *count);
int64_t graph_flow(const struct graph *graph, size_t from, size_t to);
size_t graph_breadth_first(struct graph *graph, size_t from, size_t *order);

/* huffman.c and lz.c: compression. */
struct bytes {
    uint8_t *data;
    size_t length;
    size_t capacity;
};

void bytes_init(struct bytes *bytes);
void bytes_free(struct bytes *bytes);
bool bytes_add(struct bytes *bytes, uint8_t byte);
bool huffman_lengths(const uint64_t counts[256], uint8_t lengths[256]);
bool huffman_pack(const uint8_t *data, size_t length, struct bytes *out);
bool huffman_unpack(const uint8_t *data, size_t length, struct bytes *out);
double huffman_entropy(const uint8_t *data, size_t length);
bool lz_pack(const uint8_t *data, size_t length, struct bytes *out);
bool lz_unpack(const uint8_t *data, size_t length, struct bytes *out);
bool run_length_pack(const uint8_t *data, size_t length, struct bytes *out);
bool run_length_unpack(const uint8_t *data, size_t length, struct bytes *out);
bool move_to_front(const uint8_t *data, size_t length, struct bytes *out);
bool move_to_front_back(const uint8_t *data, size_t length, struct bytes *out);

bool gamma_pack(const uint64_t *numbers, size_t count, struct bytes *out);
bool gamma_unpack(const uint8_t *data, size_t length, uint64_t *numbers, size_t count);
bool rice_pack(const uint64_t *numbers, size_t count, unsigned low_bits, struct bytes *out);
bool rice_unpack(const uint8_t *data, size_t length, unsigned low_bits, uint64_t *numbers,
                 size_t count);
unsigned rice_best_bits(const uint64_t *numbers, size_t count);
bool block_sort(const uint8_t *data, size_t length, struct bytes *out);
bool block_sort_back(const uint8_t *data, size_t length, struct bytes *out);
bool delta_pack(const uint8_t *data, size_t length, struct bytes *out);
bool delta_unpack(const uint8_t *data, size_t length, struct bytes *out);
/* json.c: values of JSON. */
enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    bool is_true;
    double number;
    char *string;
    struct json **items;
    char **names;
    size_t count;
};

struct json *json_parse(const char *source, const char **error);
void json_free(struct json *value);
bool json_print(const struct json *value, struct text *out, int indent);
const struct json *json_member(const struct json *value, const char *name);
const struct json *json_at(const struct json *value, const char *path);
bool json_is_equal(const struct json *one, const struct json *other);
size_t json_depth(const struct json *value);
size_t json_nodes(const struct json *value);

/* random.c: random numbers, and what is known of samples. */
struct random {
    uint64_t state[4];
    bool has_spare;
    double spare;
};

void random_seed(struct random *random, uint64_t seed);
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t bound);
double random_unit(struct random *random);
double random_normal(struct random *random);
double random_exponential(struct random *random, double rate);
unsigned random_poisson(struct random *random, double mean);
void random_shuffle(struct random *random, size_t *items, size_t count);

struct summary {
    size_t count;
    double mean;
    double deviation;
    double minimum;
    double maximum;
    double median;
    double skewness;
};

bool summarise(const double *values, size_t count, struct summary *summary);
double quantile(const double *sorted, size_t count, double part);
double correlation(const double *x, const double *y, size_t count);
double chi_square(const uint64_t *observed, const double *expected, size_t count);
double kolmogorov_distance(double *values, size_t count);
bool histogram_print(const double *values, size_t count, size_t bins, struct text *out);

struct line_fit {
    double slope;
    double intercept;
    double deviation;
    double slope_error;
};

bool fit_line(const double *x, const double *y, size_t count, struct line_fit *fit);
bool bootstrap_mean(struct random *random, const double *values, size_t count, size_t rounds,
                    double level, double *low, double *high);
void reservoir_add(struct random *random, double *kept, size_t capacity, size_t *seen,
                   double value);
double binomial(unsigned tries, unsigned hits, double chance);
size_t random_walk(struct random *random, size_t steps, int64_t *farthest);
double random_pi(struct random *random, size_t points);
#endif
