// Plain C: COTAF with the online precoder, or FedAvg without noise, for trials [first, last).
// Rows of the table are padded to 16 floats: d features, the target, zeros.
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { WIDTH = 16 };

static inline uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

static inline float normal(uint32_t key, uint32_t counter) {  // Box and Muller
    float u = (mix(mix(2 * counter + key) ^ 0x9E3779B9u) + 1.0f) * 0x1p-32f;
    float v = mix(mix(2 * counter + 1 + key) ^ 0x9E3779B9u) * 0x1p-32f;
    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
}

// model and update carry a last coordinate for the target, -1 and 0, and zeros up to WIDTH.
static inline void step(float *restrict update, const float *restrict model,
                        const float *restrict rows, const uint32_t *chosen, int batch, float rate) {
    float local[WIDTH], gradient[WIDTH] = {0};
    for (int j = 0; j < WIDTH; j++) local[j] = model[j] + update[j];
    for (int b = 0; b < batch; b++) {
        const float *row = rows + (size_t)chosen[b] * WIDTH;
        float residual = 0;
        for (int j = 0; j < WIDTH; j++) residual += row[j] * local[j];
        for (int j = 0; j < WIDTH; j++) gradient[j] += residual * row[j];
    }
    for (int j = 0; j < WIDTH; j++) update[j] -= rate * gradient[j];
}

void run(float *models, const float *table, const uint32_t *words, int first, int last, int users,
         int samples, int dim, int steps, int batch, int rounds, float step_size, float ratio,
         int full) {
    int size = full ? samples : batch;
    uint32_t chosen[size];
    float rate = 2.0f * step_size / size;
    for (int t = first; t < last; t++) {
        float *model = models + (size_t)t * WIDTH;
        for (int r = 0; r < rounds; r++) {
            const uint32_t *word = words + 2 * ((size_t)t * rounds + r);
            float sum[WIDTH] = {0}, energy = 0;
            for (int i = 0; i < users; i++) {
                float update[WIDTH] = {0};
                for (int k = 0; k < steps; k++) {
                    uint32_t counter = (uint32_t)(i * steps + k) * size;
                    for (int b = 0; b < size; b++)
                        chosen[b] = full ? (uint32_t)b
                                         : (uint32_t)((uint64_t)mix(mix(counter + b + word[0]) ^
                                                                    word[1]) * samples >> 32);
                    step(update, model, table + (size_t)i * samples * WIDTH, chosen, size, rate);
                    update[dim] = 0;  // the target is no coordinate
                }
                float own = 0;
                for (int j = 0; j < WIDTH; j++) own += update[j] * update[j], sum[j] += update[j];
                energy = own > energy ? own : energy;
            }
            float deviation = sqrtf(ratio * energy) / users;
            for (int j = 0; j < dim; j++) {
                model[j] += sum[j] / users;
                if (ratio > 0) model[j] += deviation * normal(word[0] ^ word[1], j);
            }
        }
    }
}
