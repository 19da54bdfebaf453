/*
 * sample_weight_int.h - the weight of a logit in a draw: an integer, with the same value on the
 * host and on a card.
 *
 *   weight = floor(2^44 * exp((logit - largest) / temperature))        the largest has weight 2^44
 *
 * Only operations that round the same on host and card are used, compiled without contraction. Sums
 * of integers are exact in any order. A token whose probability is less than 2^-44 of the likeliest
 * token's has weight 0 and is never drawn.
 */
#ifndef KVASIR_SAMPLE_WEIGHT_INT_H
#define KVASIR_SAMPLE_WEIGHT_INT_H

#include <stdint.h>

#ifdef __cplusplus
#define SAMPLE_BOTH __host__ __device__ static inline
#else
#define SAMPLE_BOTH static inline
#endif

enum { SAMPLE_BITS = 44 };

/* Returns exp(r) for |r| <= ln(2) / 2, by its series; the error is one or two units in the last
 * place. */
SAMPLE_BOTH double sample_exp(double r) {
    double sum = 1;
    for (int k = 13; k > 0; k--)
        sum = 1 + sum * (r * (1.0 / k));
    return sum;
}

SAMPLE_BOTH uint64_t sample_weight(float logit, float largest, float temperature) {
    double x = ((double)logit - (double)largest) / (double)temperature;
    /* exp(x) is less than 2^-44, or x is NaN */
    if (!(x > -31))
        return 0;
    int n = (int)(x * 1.44269504088896338700 - 0.5); /* to nearest, since x <= 0 */
    double r =
        (x - (double)n * 6.93147180369123816490e-01) - (double)n * 1.90821492927058770002e-10;
    uint64_t mantissa = (uint64_t)(sample_exp(r) * 0x1p52); /* exp(x) = mantissa * 2^(n - 52) */
    return mantissa >> (52 - SAMPLE_BITS - n);
}

#endif
