/* Matrices of real numbers, row by row in one piece of memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

/* What is smaller is taken for zero, relative to the largest cell. */
#define TINY 1e-12
/* Rows and columns of a block that fits a small cache. */
#define BLOCK 16
#define DEGREE_MAX 32

bool matrix_init(struct matrix *matrix, size_t rows, size_t columns)
{
    matrix->rows = 0;
    matrix->columns = 0;
    matrix->cells = NULL;
    if (rows == 0 || columns == 0 || rows > SIZE_MAX / columns / sizeof(double))
        return false;
    matrix->cells = calloc(rows * columns, sizeof(double));
    if (matrix->cells == NULL)
        return false;
    matrix->rows = rows;
    matrix->columns = columns;
    return true;
}

void matrix_free(struct matrix *matrix)
{
    free(matrix->cells);
    memset(matrix, 0, sizeof(*matrix));
}

double matrix_get(const struct matrix *matrix, size_t row, size_t column)
{
    return matrix->cells[row * matrix->columns + column];
}

void matrix_set(struct matrix *matrix, size_t row, size_t column, double value)
{
    matrix->cells[row * matrix->columns + column] = value;
}

static double *row_of(const struct matrix *matrix, size_t row)
{
    return matrix->cells + row * matrix->columns;
}

bool matrix_copy(struct matrix *to, const struct matrix *from)
{
    if (!matrix_init(to, from->rows, from->columns))
        return false;
    memcpy(to->cells, from->cells, from->rows * from->columns * sizeof(double));
    return true;
}

bool matrix_identity(struct matrix *matrix, size_t size)
{
    if (!matrix_init(matrix, size, size))
        return false;
    for (size_t place = 0; place < size; place++)
        matrix_set(matrix, place, place, 1.0);
    return true;
}

static size_t at_most(size_t value, size_t bound)
{
    return value < bound ? value : bound;
}

/* Adds the product of two blocks to a block of the product. */
static void multiply_block(struct matrix *product, const struct matrix *one,
                           const struct matrix *other, size_t row, size_t middle, size_t column)
{
    size_t row_end = at_most(row + BLOCK, product->rows);
    size_t middle_end = at_most(middle + BLOCK, one->columns);
    size_t column_end = at_most(column + BLOCK, product->columns);

    for (size_t i = row; i < row_end; i++) {
        double *to = row_of(product, i);

        for (size_t k = middle; k < middle_end; k++) {
            const double *from = row_of(other, k);
            double factor = matrix_get(one, i, k);

            for (size_t j = column; j < column_end; j++)
                to[j] += factor * from[j];
        }
    }
}

bool matrix_multiply(struct matrix *product, const struct matrix *one, const struct matrix *other)
{
    if (one->columns != other->rows || !matrix_init(product, one->rows, other->columns))
        return false;
    for (size_t row = 0; row < product->rows; row += BLOCK) {
        for (size_t middle = 0; middle < one->columns; middle += BLOCK) {
            for (size_t column = 0; column < product->columns; column += BLOCK)
                multiply_block(product, one, other, row, middle, column);
        }
    }
    return true;
}

bool matrix_transpose(struct matrix *to, const struct matrix *from)
{
    if (!matrix_init(to, from->columns, from->rows))
        return false;
    for (size_t row = 0; row < from->rows; row++) {
        for (size_t column = 0; column < from->columns; column++)
            matrix_set(to, column, row, matrix_get(from, row, column));
    }
    return true;
}

static void swap_rows(struct matrix *matrix, size_t one, size_t other)
{
    double *a = row_of(matrix, one), *b = row_of(matrix, other);

    for (size_t column = 0; column < matrix->columns; column++) {
        double kept = a[column];

        a[column] = b[column];
        b[column] = kept;
    }
}

static double largest_cell(const struct matrix *matrix)
{
    double largest = 0;

    for (size_t cell = 0; cell < matrix->rows * matrix->columns; cell++)
        largest = fmax(largest, fabs(matrix->cells[cell]));
    return largest;
}

/* Returns the row, from `row` on, with the largest cell in a column. */
static size_t pivot_row(const struct matrix *matrix, size_t row, size_t column)
{
    size_t best = row;

    for (size_t other = row + 1; other < matrix->rows; other++) {
        if (fabs(matrix_get(matrix, other, column)) > fabs(matrix_get(matrix, best, column)))
            best = other;
    }
    return best;
}

/* Subtracts a multiple of a row from another, from a column on. */
static void subtract_row(struct matrix *matrix, size_t from, size_t what, double factor,
                         size_t column)
{
    double *to = row_of(matrix, from);
    const double *row = row_of(matrix, what);

    for (; column < matrix->columns; column++)
        to[column] -= factor * row[column];
}

/*
 * Replaces a square matrix by its factors: a lower triangle with ones on its diagonal, which are
 * not stored, and an upper triangle. False if it is singular.
 */
bool matrix_decompose(struct matrix *matrix, size_t *permutation, int *sign)
{
    double tiny = TINY * largest_cell(matrix);

    if (matrix->rows != matrix->columns)
        return false;
    *sign = 1;
    for (size_t row = 0; row < matrix->rows; row++)
        permutation[row] = row;
    for (size_t step = 0; step < matrix->rows; step++) {
        size_t best = pivot_row(matrix, step, step);

        if (fabs(matrix_get(matrix, best, step)) <= tiny)
            return false;
        if (best != step) {
            size_t kept = permutation[step];

            permutation[step] = permutation[best];
            permutation[best] = kept;
            swap_rows(matrix, step, best);
            *sign = -*sign;
        }
        for (size_t row = step + 1; row < matrix->rows; row++) {
            double factor = matrix_get(matrix, row, step) / matrix_get(matrix, step, step);

            subtract_row(matrix, row, step, factor, step + 1);
            matrix_set(matrix, row, step, factor);
        }
    }
    return true;
}

/* A decomposed copy of a matrix. */
struct factors {
    struct matrix matrix;
    size_t *permutation;
    int sign;
};

static bool factors_of(struct factors *factors, const struct matrix *matrix)
{
    factors->permutation = calloc(matrix->rows, sizeof(size_t));
    if (factors->permutation == NULL)
        return false;
    if (!matrix_copy(&factors->matrix, matrix)) {
        free(factors->permutation);
        return false;
    }
    if (matrix_decompose(&factors->matrix, factors->permutation, &factors->sign))
        return true;
    matrix_free(&factors->matrix);
    free(factors->permutation);
    return false;
}

static void factors_free(struct factors *factors)
{
    matrix_free(&factors->matrix);
    free(factors->permutation);
}

/* Solves for one right side by substitution, forwards and backwards. */
static void substitute(const struct factors *factors, const double *right, double *solution)
{
    const struct matrix *matrix = &factors->matrix;
    size_t size = matrix->rows;

    for (size_t row = 0; row < size; row++) {
        const double *cells = row_of(matrix, row);
        double sum = right[factors->permutation[row]];

        for (size_t column = 0; column < row; column++)
            sum -= cells[column] * solution[column];
        solution[row] = sum;
    }
    for (size_t row = size; row-- > 0;) {
        const double *cells = row_of(matrix, row);
        double sum = solution[row];

        for (size_t column = row + 1; column < size; column++)
            sum -= cells[column] * solution[column];
        solution[row] = sum / cells[row];
    }
}

double matrix_determinant(const struct matrix *matrix)
{
    struct factors factors;
    double product;

    if (matrix->rows != matrix->columns)
        return NAN;
    if (!factors_of(&factors, matrix))
        return 0.0;
    product = factors.sign;
    for (size_t place = 0; place < matrix->rows; place++)
        product *= matrix_get(&factors.matrix, place, place);
    factors_free(&factors);
    return product;
}

bool matrix_solve(const struct matrix *matrix, const double *right, double *solution)
{
    struct factors factors;

    if (!factors_of(&factors, matrix))
        return false;
    substitute(&factors, right, solution);
    factors_free(&factors);
    return true;
}

bool matrix_invert(struct matrix *inverse, const struct matrix *matrix)
{
    struct factors factors;
    size_t size = matrix->rows;
    double *right, *solution;
    bool is_done = false;

    if (!factors_of(&factors, matrix))
        return false;
    right = calloc(size, sizeof(double));
    solution = calloc(size, sizeof(double));
    if (right != NULL && solution != NULL && matrix_init(inverse, size, size)) {
        for (size_t column = 0; column < size; column++) {
            memset(right, 0, size * sizeof(double));
            right[column] = 1.0;
            substitute(&factors, right, solution);
            for (size_t row = 0; row < size; row++)
                matrix_set(inverse, row, column, solution[row]);
        }
        is_done = true;
    }
    free(right);
    free(solution);
    factors_free(&factors);
    return is_done;
}

/* The number of rows that are left when all others are multiples of them. */
size_t matrix_rank(const struct matrix *matrix)
{
    struct matrix rest;
    double tiny = TINY * largest_cell(matrix);
    size_t rank = 0;

    if (!matrix_copy(&rest, matrix))
        return 0;
    for (size_t column = 0; column < rest.columns && rank < rest.rows; column++) {
        size_t best = pivot_row(&rest, rank, column);

        if (fabs(matrix_get(&rest, best, column)) <= tiny)
            continue;
        swap_rows(&rest, rank, best);
        for (size_t row = rank + 1; row < rest.rows; row++) {
            double factor = matrix_get(&rest, row, column) / matrix_get(&rest, rank, column);

            subtract_row(&rest, row, rank, factor, column);
        }
        rank++;
    }
    matrix_free(&rest);
    return rank;
}

/* Replaces a matrix by its product with another one. */
static bool multiply_into(struct matrix *matrix, const struct matrix *other)
{
    struct matrix product;

    if (!matrix_multiply(&product, matrix, other))
        return false;
    matrix_free(matrix);
    *matrix = product;
    return true;
}

/* By squaring: as many products as the exponent has bits, twice at most. */
bool matrix_power(struct matrix *power, const struct matrix *matrix, unsigned exponent)
{
    struct matrix square;
    bool is_fine = true;

    if (matrix->rows != matrix->columns || !matrix_identity(power, matrix->rows))
        return false;
    if (!matrix_copy(&square, matrix)) {
        matrix_free(power);
        return false;
    }
    while (is_fine && exponent > 0) {
        if (exponent & 1)
            is_fine = multiply_into(power, &square);
        exponent >>= 1;
        if (is_fine && exponent > 0)
            is_fine = multiply_into(&square, &square);
    }
    matrix_free(&square);
    if (!is_fine)
        matrix_free(power);
    return is_fine;
}

/* By iteration: the direction that a matrix stretches most. */
double matrix_dominant_eigenvalue(const struct matrix *matrix, unsigned steps)
{
    size_t size = matrix->rows;
    double *vector = calloc(size, sizeof(double)), *next = calloc(size, sizeof(double));
    double value = 0;

    if (vector == NULL || next == NULL || size != matrix->columns) {
        free(vector);
        free(next);
        return NAN;
    }
    for (size_t place = 0; place < size; place++)
        vector[place] = 1.0;
    for (; steps > 0; steps--) {
        double *kept = vector;

        value = 0;
        for (size_t row = 0; row < size; row++) {
            next[row] = 0;
            for (size_t column = 0; column < size; column++)
                next[row] += matrix_get(matrix, row, column) * vector[column];
            if (fabs(next[row]) > fabs(value))
                value = next[row];
        }
        if (value == 0)
            break;
        for (size_t row = 0; row < size; row++)
            next[row] /= value;
        vector = next;
        next = kept;
    }
    free(vector);
    free(next);
    return value;
}

/* The polynomial with the least squares of differences; `coefficients` has `degree` + 1 places. */
bool matrix_fit_polynomial(const double *x, const double *y, size_t count, size_t degree,
                           double *coefficients)
{
    double powers[2 * DEGREE_MAX + 1] = { 0 }, right[DEGREE_MAX + 1] = { 0 };
    struct matrix normal;
    bool is_solved;

    if (degree > DEGREE_MAX || count <= degree || !matrix_init(&normal, degree + 1, degree + 1))
        return false;
    for (size_t point = 0; point < count; point++) {
        double power = 1.0;

        for (size_t place = 0; place <= 2 * degree; place++) {
            powers[place] += power;
            if (place <= degree)
                right[place] += power * y[point];
            power *= x[point];
        }
    }
    for (size_t row = 0; row <= degree; row++) {
        for (size_t column = 0; column <= degree; column++)
            matrix_set(&normal, row, column, powers[row + column]);
    }
    is_solved = matrix_solve(&normal, right, coefficients);
    matrix_free(&normal);
    return is_solved;
}
