// BigBird's block-sparse attention on a CPU: softmax(Q Kᵀ / √K) V over lists of key blocks, and its gradients.
//
// Axes: B batch, H heads, L tokens, K head width, Q query blocks, W block size, S key blocks per query block. Inside:
// i a query of a tile, j a key of a tile, c a column of the head width.
//
// The forward pass is flash attention: a tile of up to 64 queries processes its keys 64 at a time with a running
// maximum, sum and output. Scores are stored transposed, (j, i). The softmax thus runs down columns, one query per
// vector lane, and both products read keys and values row by row in memory order. Exponentials use base 2; log2 e is
// part of the scale.
//
// If whole heads divide evenly among the threads, the backward pass processes each pair of tiles once. Otherwise it
// processes each pair twice, for the gradients of queries and for those of keys and values. Each sum has the same
// order in both cases, so results do not depend on the number of threads, bit for bit.
//
// A single file without dependencies, with a C interface; disk/native_library.py compiles it and native_kernel.py
// calls it.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(VECTOR_BYTES)
#elif defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
typedef float Loose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

constexpr long LANES = VECTOR_BYTES / 4;
// Rows of a register tile, two vectors wide: with the operands it fills the 16 or 32 vector registers. Tiles four
// vectors wide, of half as many rows, load fewer operands, where rows are long enough.
#if VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int ROWS = 12;
#else
constexpr int ROWS = 6;
#endif
constexpr long TILE = 64;  // queries or keys of a tile, and the row length of transposed buffers
constexpr float LOG2_E = 1.44269504088896341f;
constexpr float MASKED = -1e30f;
// Sums are rescaled only after the maximum has grown by this power of 2.
constexpr float SLACK = 8;
constexpr long LONGEST_RUN = 4;                // query blocks of a work item
constexpr long PACK_ROWS = 64;                 // keys of a work item
#ifndef PACKED_NUMBERS
#define PACKED_NUMBERS (4L << 20)  // most elements packed at once per thread: 16 MiB
#endif
constexpr long CACHED_NUMBERS = 1 << 17;       // of short sequences: 512 KiB, which stay in the cache

inline Vector load(const float* x) { return *reinterpret_cast<const Loose*>(x); }
inline void store(float* x, Vector value) { *reinterpret_cast<Loose*>(x) = value; }
inline Vector splat(float x) { return x - Vector{}; }
inline Vector maximum(Vector a, Vector b) { return a > b ? a : b; }  // b if either is NaN

// a * b + c with a single rounding if the processor supports it. Left to the compiler, rounding depends on the
// surrounding code (GCC splits fused chains where that is faster), and equal sums would differ in their last bits.
inline Vector fused(Vector a, Vector b, Vector c) {
#if VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VECTOR_BYTES == 32 && defined(__FMA__)
    return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif VECTOR_BYTES == 16 && defined(__FMA__)
    return (Vector)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif VECTOR_BYTES == 16 && defined(__aarch64__)
    return (Vector)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// 2^x within 1.6e-7 relative for x <= 127; exactly 0 below -126.5, exactly 1 at 0; NaN stays NaN.
inline Vector power(Vector x) {
    constexpr float SHIFT = 12582912.0f + 127.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = maximum(splat(-127.0f), x);
    const Vector shifted = x + SHIFT;
    const Vector f = x - (shifted - SHIFT);
    Vector p = splat(0.0013264725f);
    for (const float coefficient : {0.009671513f, 0.055507336f, 0.24022242f, 0.693147f, 1.0f})
        p = fused(p, f, splat(coefficient));
    return p * (Vector)((Integers)shifted << 23);
}

// Indices 0, n, 1, n + 1 … of two vectors of n lanes, beginning with index From of the first vector.
template <long From, std::size_t... I> inline Vector zip(Vector a, Vector b, std::index_sequence<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, (From + I / 2 + I % 2 * LANES)...);
#else
    return __builtin_shuffle(a, b, Integers{static_cast<int32_t>(From + I / 2 + I % 2 * LANES)...});
#endif
}

// Transpose a square of LANES rows: zip row r with row r + LANES / 2, log2 LANES times.
inline void transpose(Vector (&rows)[LANES]) {
    constexpr std::make_index_sequence<LANES> lanes{};
#pragma GCC unroll 4
    for (long done = 1; done < LANES; done *= 2) {
        Vector zipped[LANES];
#pragma GCC unroll 16
        for (long r = 0; r < LANES / 2; ++r) {
            zipped[2 * r] = zip<0>(rows[r], rows[r + LANES / 2], lanes);
            zipped[2 * r + 1] = zip<LANES / 2>(rows[r], rows[r + LANES / 2], lanes);
        }
#pragma GCC unroll 16
        for (long r = 0; r < LANES; ++r) rows[r] = zipped[r];
    }
}

// ---- number types -------------------------------------------------------------------------------------------

struct Brain {
    uint16_t bits;
    operator float() const {
        const uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
    static Brain from(float value) {  // round to nearest, ties to even
        uint32_t wide;
        std::memcpy(&wide, &value, 4);
        const uint32_t rounded = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
        return {static_cast<uint16_t>(value == value ? rounded : 0x7fc0)};
    }
};

// Read LANES elements from `x` on.
inline Vector widen(const float* x) { return load(x); }
inline Vector widen(const Brain* x) {
    typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
    return (Vector)(__builtin_convertvector(*reinterpret_cast<const Halves*>(x), Integers) << 16);
}

// The reverse conversion; `narrow_to` returns the same bits as `narrow`.
inline void narrow_to(float* x, Vector value) { store(x, value); }
inline void narrow_to(Brain* x, Vector value) {
    typedef uint32_t Unsigned __attribute__((vector_size(VECTOR_BYTES)));
    typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
    const Unsigned wide = (Unsigned)value, rounded = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    const Unsigned bits = value == value ? rounded : (Unsigned{} + 0x7fc0);
    *reinterpret_cast<Halves*>(x) = __builtin_convertvector(bits, Halves);
}

template <typename T> inline T narrow(float value) { return static_cast<T>(value); }
template <> inline Brain narrow<Brain>(float value) { return Brain::from(value); }

// 1 + e^-2u with u = √(2 / π) (x + 0.044715 x³); GELU is x divided by this.
inline Vector gelu_divisor(Vector x) {
    constexpr float SCALE = -2 * 0.7978845608028654f * LOG2_E;
    const Vector power_of = x * SCALE * fused(x * x, splat(0.044715f), splat(1.0f));
    // 2^126 is effectively infinity here, and `power` supports no larger exponents.
    return power(-maximum(splat(-126.0f), -power_of)) + 1.0f;
}

inline Vector gelu_value(Vector x) { return x / gelu_divisor(x); }

// ---- matrix products ----------------------------------------------------------------------------------------

// Row positions of B: equally spaced, or given by a list.
struct Spaced {
    const float* start;
    long step;
    const float* row(long k) const { return start + k * step; }
    Spaced from(long x) const { return {start + x, step}; }
};
struct Listed {
    const float* const* rows;
    long offset;
    const float* row(long k) const { return rows[k] + offset; }
    Listed from(long x) const { return {rows, offset + x}; }
};

// What is stored of the sums of a product, by column: the sums, with a bias, or GELU of these.
struct Sums {
    Sums from(long) const { return {}; }
    Vector operator()(long, Vector sum) const { return sum; }
};
struct Biased {
    const float* bias;
    Biased from(long x) const { return {bias + x}; }
    Vector operator()(long x, Vector sum) const { return sum + load(bias + x); }
};
struct BiasedGelu {
    const float* bias;
    BiasedGelu from(long x) const { return {bias + x}; }
    Vector operator()(long x, Vector sum) const { return gelu_value(sum + load(bias + x)); }
};

// A register tile of C (+)= A B, R rows and N vectors wide. A is read by element, at a[r * lda + k], or at a[k * lda +
// r] if `Flipped`; B is read in vectors.
template <int R, int N, bool Flipped, bool Add, typename B, typename Stored>
__attribute__((always_inline)) inline void tile(long depth, const float* __restrict a, long lda, B b,
                                                float* __restrict c, long ldc, Stored stored) {
    Vector sums[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int x = 0; x < N; ++x) sums[r][x] = Add ? load(c + r * ldc + x * LANES) : Vector{};
    for (long k = 0; k < depth; ++k) {
        Vector row[N];
        const float* __restrict from = b.row(k);
#pragma GCC unroll 4
        for (int x = 0; x < N; ++x) row[x] = load(from + x * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Vector factor = splat(Flipped ? a[k * lda + r] : a[r * lda + k]);
#pragma GCC unroll 4
            for (int x = 0; x < N; ++x) sums[r][x] = fused(factor, row[x], sums[r][x]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int x = 0; x < N; ++x) store(c + r * ldc + x * LANES, stored(x * LANES, sums[r][x]));
}

template <int N, bool Flipped, bool Add, typename B, typename Stored = Sums>
__attribute__((always_inline)) inline void panel(long rows, long depth, const float* a, long lda, B b, float* c,
                                                 long ldc, Stored stored = {}) {
    const long step = Flipped ? 1 : lda;
    long r = 0;
    constexpr int MANY = N == 4 ? ROWS / 2 : ROWS;
#define NEXT(R) tile<R, N, Flipped, Add>(depth, a + r * step, lda, b, c + r * ldc, ldc, stored), r += R
    while (r + MANY <= rows) NEXT(MANY);
    if (MANY > 6 && r + 6 <= rows) NEXT(6);
    switch (rows - r) {  // one tile for the rest, whose time is hardly that of its last row
        case 5: NEXT(5); break;
        case 4: NEXT(4); break;
        case 3: NEXT(3); break;
        case 2: NEXT(2); break;
        case 1: NEXT(1);
    }
#undef NEXT
}

// C (+)= A B for `columns` of B and C, a multiple of LANES.
template <bool Flipped, bool Add, typename B>
__attribute__((always_inline)) inline void product(long rows, long columns, long depth, const float* a, long lda,
                                                   B b, float* c, long ldc) {
    long x = 0;
#if VECTOR_BYTES == 64
    for (; x + 4 * LANES <= columns; x += 4 * LANES)
        panel<4, Flipped, Add>(rows, depth, a, lda, b.from(x), c + x, ldc);
#endif
    for (; x + 2 * LANES <= columns; x += 2 * LANES)
        panel<2, Flipped, Add>(rows, depth, a, lda, b.from(x), c + x, ldc);
    if (x < columns) panel<1, Flipped, Add>(rows, depth, a, lda, b.from(x), c + x, ldc);
}

// The three products of attention; `line` is the length of rows (·, c) in buffers.

// (j, i) ← (j, c) (c, i). Line equals `width` and `line` where the compiler knows them, else 0.
template <long Line>
__attribute__((noinline)) void against_queries(long keys, long columns, long width, long line, const float* rows,
                                               const float* flipped, float* result) {
    product<false, false>(keys, columns, Line ? Line : width, rows, Line ? Line : line, Spaced{flipped, TILE}, result,
                          TILE);
}

// (i, c) += (j, i)ᵀ (j, c)
__attribute__((noinline)) void add_to_queries(long queries, long keys, long line, const float* weights,
                                              const float* const* rows, float* result) {
    product<true, true>(queries, line, keys, weights, TILE, Listed{rows, 0}, result, line);
}

// (j, c) += (j, i) (i, c)
__attribute__((noinline)) void add_to_keys(long keys, long queries, long line, const float* weights,
                                           const float* rows, float* result) {
    product<false, true>(keys, line, queries, weights, TILE, Spaced{rows, line}, result, line);
}

}  // namespace

// ---- the problem --------------------------------------------------------------------------------------------

extern "C" {

typedef void (*Worker)(void*);
typedef void (*Launcher)(Worker, void*, unsigned threads, unsigned flags);  // GOMP_parallel

// A tensor (B, H, L, K) with contiguous last axis; strides in elements.
struct Array {
    void* data;
    int64_t batch, head, token;
};

// `KernelCall` in native_kernel.py declares the same fields.
struct Problem {
    int64_t batch, heads, tokens, width;
    int64_t block_size, blocks, seen;  // W, Q, S
    int64_t causal;
    int64_t type;     // 0 float32, 1 bfloat16
    int64_t threads;
    double scale;       // scale of the scores
    double first_bias;  // log2 of how often rows that are not full count key block 0
    const int32_t* key_blocks;  // (H, Q, S), -1 padded at the end of each row
    const uint8_t* full;        // (Q,) whether a query block attends to every block
    const int64_t* rows;        // (B,) positions of the sequences in the tensors; null: 0, 1, …
    const int64_t* lengths;     // (B,)
    Launcher launcher;          // null: start own threads
    float* scratch;             // `scratch_size` elements
    Array q, k, v, out;
    float* lse;  // (B, H, L) log2 of the sum of exponentials, contiguous
    Array upper, grad_q, grad_k, grad_v;
};

// An encoder layer: matrices packed for `multiply`, vectors padded with 0 to whole panels. `_Weights` in
// native_kernel.py declares the same.
struct Weights {
    int64_t hidden, inner;  // D, I
    double epsilon;
    const float *joined, *joined_bias;  // queries, keys and values
    const float *output, *output_bias, *gain, *shift;
    const float *up, *up_bias, *down, *down_bias, *last_gain, *last_shift;
};

}

namespace {

long padded(long width) { return (width + LANES - 1) / LANES * LANES; }

// Elements per buffer row; those past the head width are 0.
long line(const Problem& p) { return padded(p.width); }

// Memory of one worker: a tile of queries, and intermediates for it and a tile of keys.
struct Scratch {
    float *q, *q_flipped, *upper, *upper_flipped, *sum, *grad_k, *grad_v;  // TILE rows (·, c), or flipped
    float *scores, *slopes;                                                // (j, i)
    float *top, *total, *lse, *delta, *factor;                             // TILE elements each
};

// Assign parts of `memory`, if given, to `s`; returns the number of elements needed.
long divide(float* memory, long line, Scratch& s) {
    long used = 0;
    const auto part = [&](float*& to, long size) { to = memory ? memory + used : nullptr, used += size; };
    for (float** to : {&s.q, &s.q_flipped, &s.upper, &s.upper_flipped, &s.sum, &s.grad_k, &s.grad_v})
        part(*to, TILE * line);
    for (float** to : {&s.scores, &s.slopes}) part(*to, TILE * TILE);
    for (float** to : {&s.top, &s.total, &s.lse, &s.delta, &s.factor}) part(*to, TILE);
    return used;
}

long worker_scratch(const Problem& p) {
    Scratch none;
    return divide(nullptr, line(p), none);
}

Scratch scratch_of(const Problem& p, long worker) {
    Scratch s;
    divide(p.scratch + worker * worker_scratch(p), line(p), s);
    return s;
}

// ---- rows in and out ----------------------------------------------------------------------------------------

template <typename T> void take_as(const T* from, float* to, long width) {
    for (; width >= LANES; width -= LANES, from += LANES, to += LANES) store(to, widen(from));
    if (width > 0)
        for (long c = 0; c < LANES; ++c) to[c] = c < width ? static_cast<float>(from[c]) : 0.0f;
}

template <typename T> void put_as(const float* from, T* to, long width, float scale) {
    for (long c = 0; c < width; ++c) to[c] = narrow<T>(from[c] * scale);
}

// Position of a sequence in the tensors.
long row_of(const Problem& p, long batch) { return p.rows ? p.rows[batch] : batch; }

// Position of an element (batch, head, token, 0) of a tensor.
long position(const Problem& p, const Array& x, long batch, long head, long token) {
    return row_of(p, batch) * x.batch + head * x.head + token * x.token;
}

// Position of an element (batch, head, token) of the log-sum-exps.
long lse_position(const Problem& p, long batch, long head, long token) {
    return (row_of(p, batch) * p.heads + head) * p.tokens + token;
}

// Copy one row of a tensor to or from a buffer.
void take(const Problem& p, const Array& x, long batch, long head, long token, float* to) {
    const long at = position(p, x, batch, head, token);
    if (p.type == 1) return take_as(static_cast<const Brain*>(x.data) + at, to, p.width);
    take_as(static_cast<const float*>(x.data) + at, to, p.width);
}

void put(const Problem& p, const float* from, float scale, Array& x, long batch, long head, long token) {
    const long at = position(p, x, batch, head, token);
    if (p.type == 1) return put_as(from, static_cast<Brain*>(x.data) + at, p.width, scale);
    put_as(from, static_cast<float*>(x.data) + at, p.width, scale);
}

// Keys and values of a head as buffer rows: key j at k + j * line. In the tensors, all heads of a token are usually
// adjacent, so a tile of one head would have each row in another page and compete for few cache sets.
struct Rows {
    const float *k, *v;
};

// Whether the tensors already have this layout.
bool is_packed(const Problem& p) {
    return p.type == 0 && p.width == line(p) && p.k.token == p.width && p.v.token == p.width;
}

long plane_size(const Problem& p) { return p.tokens * line(p); }

// Consecutive heads, numbered across all sequences; `room` has `Layout::size` elements per head.
struct Group {
    long first, planes;
    float* room;
};

// Buffers kept per head while its group is computed.
struct Layout {
    long packed;  // 2 if keys and values are packed, else 0
    long sums;    // 2 if gradients of keys and values are accumulated
    long size(const Problem& p) const { return (packed + sums) * plane_size(p); }
};

Rows rows_of(const Problem& p, const Group& group, const Layout& layout, long plane) {
    if (layout.packed) {
        const float* at = group.room + (plane - group.first) * layout.size(p);
        return {at, at + plane_size(p)};
    }
    const long batch = plane / p.heads, head = plane % p.heads;
    const long k = position(p, p.k, batch, head, 0), v = position(p, p.v, batch, head, 0);
    return {static_cast<const float*>(p.k.data) + k, static_cast<const float*>(p.v.data) + v};
}

// Accumulated gradients of a head's keys; those of the values follow.
float* sums_of(const Problem& p, const Group& group, const Layout& layout, long plane) {
    return group.room + (plane - group.first) * layout.size(p) + layout.packed * plane_size(p);
}

// ---- tiles --------------------------------------------------------------------------------------------------

// Consecutive keys of a tile.
struct Segment {
    long start, count;  // position of the first key in the sequence
    bool first;         // in key block 0
    bool own;           // in the queries' own block
};

struct Keys {
    long count, segments;
    Segment segment[TILE];
};

// Consecutive queries of one block.
struct Queries {
    long batch, head, block, start, count;
    long columns() const { return padded(count); }
};

// Visit the tiles of a query block that contain true positions.
template <typename Visit> void each_tile(const Problem& p, long batch, long head, long block, Visit visit) {
    const long begin = block * p.block_size, end = std::min<long>(begin + p.block_size, p.lengths[batch]);
    for (long start = begin; start < end; start += TILE)
        visit(Queries{batch, head, block, start, std::min(TILE, end - start)});
}

// Iterator over the keys that a query block attends to, one tile at a time.
class Walk {
  public:
    Walk(const Problem& p, const Queries& queries)
        : p(p), own(queries.block), length(p.lengths[queries.batch]), last(queries.start + queries.count),
          full(p.full[queries.block]), list(p.key_blocks + (queries.head * p.blocks + queries.block) * p.seen) {}

    bool next(Keys& keys) {
        keys.count = keys.segments = 0;
        const long blocks = full ? 1 : p.seen;  // for a full row, the whole sequence is one block
        // Keys after the end of the sequence, or after all queries of a causal tile, occupy space in a tile. The
        // composition of tiles, and the order of all sums, thus does not depend on the sequence's length.
        long room = TILE;
        while (place < blocks && (full || list[place] >= 0)) {
            const long start = (full ? 0 : list[place] * p.block_size) + done;
            const long left = (full ? length : p.block_size) - done, taken = std::min(left, room);
            const bool first = !full && list[place] == 0, same = !full && list[place] == own;
            const long count = std::min(taken, (same && p.causal ? std::min(last, length) : length) - start);
            if (count > 0) {
                keys.segment[keys.segments++] = {start, count, first, same};
                keys.count += count;
            }
            room -= taken, done += taken;
            if (taken == left) ++place, done = 0;
            if (room > 0) continue;
            if (keys.count > 0) break;
            room = TILE;  // all of it was after the end
        }
        return keys.count > 0;
    }

  private:
    const Problem& p;
    const long own, length, last;
    const bool full;
    const int32_t* list;
    long place = 0, done = 0;
};

// (i, c) → (c, i) times `scale`; columns past the last query are 0.
void flip(const Problem& p, const float* from, float* to, const Queries& queries, float scale) {
    for (long i = 0; i < queries.columns(); i += LANES)
        for (long c = 0; c < line(p); c += LANES) {
            Vector square[LANES];
            for (long r = 0; r < LANES; ++r)
                square[r] = i + r < queries.count ? load(from + (i + r) * line(p) + c) * scale : Vector{};
            transpose(square);
            for (long r = 0; r < LANES; ++r) store(to + (c + r) * TILE + i, square[r]);
        }
}

// Load queries, scaled for base-2 scores.
void load_queries(const Problem& p, Scratch& s, const Queries& queries) {
    for (long i = 0; i < queries.count; ++i)
        take(p, p.q, queries.batch, queries.head, queries.start + i, s.q + i * line(p));
    flip(p, s.q, s.q_flipped, queries, static_cast<float>(p.scale) * LOG2_E);
}

// (j, i) ← rows (j, c) of keys or values times flipped queries.
void rows_against_queries(const Problem& p, const Queries& queries, const Keys& keys, const float* rows,
                          const float* flipped, float* result) {
    const long columns = queries.columns(), width = p.width, length = line(p);
    for (long n = 0; n < keys.segments; ++n) {
        const long count = keys.segment[n].count;
        const float* start = rows + keys.segment[n].start * length;
        if (width == 64)
            against_queries<64>(count, columns, width, length, start, flipped, result);
        else if (width == 32)
            against_queries<32>(count, columns, width, length, start, flipped, result);
        else
            against_queries<0>(count, columns, width, length, start, flipped, result);
        result += count * TILE;
    }
}

// s.sum (i, c) += weights (j, i)ᵀ times rows (j, c) of keys or values.
void add_rows_to_queries(const Problem& p, Scratch& s, const Queries& queries, const Keys& keys,
                         const float* weights, const float* rows) {
    const float* list[TILE];
    long j = 0;
    for (long n = 0; n < keys.segments; ++n)
        for (long at = 0; at < keys.segment[n].count; ++at)
            list[j++] = rows + (keys.segment[n].start + at) * line(p);
    add_to_queries(queries.count, keys.count, line(p), weights, list, s.sum);
}

// s.scores (j, i) ← base-2 scores, with bias and mask.
void scores(const Problem& p, Scratch& s, const Queries& queries, const Keys& keys, const Rows& rows) {
    const long columns = queries.columns();
    rows_against_queries(p, queries, keys, rows.k, s.q_flipped, s.scores);
    float* row = s.scores;
    for (long n = 0; n < keys.segments; ++n) {
        const Segment& part = keys.segment[n];
        if (part.first && p.first_bias != 0)
            for (long at = 0; at < part.count; ++at)
                for (long i = 0; i < columns; ++i) row[at * TILE + i] += static_cast<float>(p.first_bias);
        if (part.own && p.causal)
            for (long at = 0; at < part.count; ++at)
                std::fill_n(row + at * TILE, std::clamp(part.start + at - queries.start, 0L, columns), MASKED);
        row += part.count * TILE;
    }
}

// ---- forward ------------------------------------------------------------------------------------------------

// s.scores ← exponentials relative to s.top; adds to s.total. Returns whether s.factor must be applied to earlier
// sums, because s.top has grown for some query. Each query is independent of its neighbors.
bool softmax(Scratch& s, long columns, long keys) {
    bool grown = false;
    for (long i = 0; i < columns; i += LANES) {
        float* column = s.scores + i;
        const Vector before = load(s.top + i);
        // Several maxima at a time: one would wait for its predecessor.
        Vector tops[4] = {before, before, before, before};
        long last = 0;
        for (; last + 4 <= keys; last += 4)
#pragma GCC unroll 4
            for (long n = 0; n < 4; ++n) tops[n] = maximum(load(column + (last + n) * TILE), tops[n]);
        for (; last < keys; ++last) tops[0] = maximum(load(column + last * TILE), tops[0]);
        Vector top = maximum(maximum(tops[0], tops[1]), maximum(tops[2], tops[3]));
        const Integers grows = top > before + SLACK;
        top = grows ? top : before;
        Vector sum{};
        for (long j = 0; j < keys; ++j) {
            const Vector weight = power(load(column + j * TILE) - top);
            store(column + j * TILE, weight);
            sum += weight;
        }
        bool any = false;
        for (long lane = 0; lane < LANES; ++lane) any |= grows[lane] != 0;
        const Vector factor = any ? power(before - top) : splat(1.0f);
        store(s.factor + i, factor);
        store(s.total + i, fused(load(s.total + i), factor, sum));
        store(s.top + i, top);
        grown |= any;
    }
    return grown;
}

void attend(Problem& p, Scratch& s, const Queries& queries, const Rows& rows) {
    const long columns = queries.columns();
    load_queries(p, s, queries);
    std::fill_n(s.top, columns, MASKED);
    std::fill_n(s.total, columns, 0.0f);
    std::fill_n(s.sum, queries.count * line(p), 0.0f);
    Walk walk(p, queries);
    for (Keys keys; walk.next(keys);) {
        scores(p, s, queries, keys, rows);
        if (softmax(s, columns, keys.count))
            for (long i = 0; i < queries.count; ++i)
                for (long c = 0; c < line(p); ++c) s.sum[i * line(p) + c] *= s.factor[i];
        add_rows_to_queries(p, s, queries, keys, s.scores, rows.v);
    }
    float* lse = p.lse + lse_position(p, queries.batch, queries.head, queries.start);
    for (long i = 0; i < queries.count; ++i) {
        lse[i] = s.top[i] + std::log2(s.total[i]);
        put(p, s.sum + i * line(p), 1 / s.total[i], p.out, queries.batch, queries.head, queries.start + i);
    }
}

// ---- backward -----------------------------------------------------------------------------------------------

// Load queries as for the forward pass, and as rows times the scale; the gradients of their outputs; and their stored
// results.
void load_queries_backward(const Problem& p, Scratch& s, const Queries& queries) {
    load_queries(p, s, queries);
    const float scale = static_cast<float>(p.scale);
    for (long n = 0; n < queries.count * line(p); ++n) s.q[n] *= scale;
    std::fill_n(s.lse, TILE, 0.0f);
    std::fill_n(s.delta, TILE, 0.0f);
    const float* lse = p.lse + lse_position(p, queries.batch, queries.head, queries.start);
    std::copy_n(lse, queries.count, s.lse);
    for (long i = 0; i < queries.count; ++i) {
        float *upper = s.upper + i * line(p), *out = s.upper_flipped;  // reuses a free row
        take(p, p.upper, queries.batch, queries.head, queries.start + i, upper);
        take(p, p.out, queries.batch, queries.head, queries.start + i, out);
        Vector sum{};
        for (long c = 0; c < line(p); c += LANES) sum = fused(load(upper + c), load(out + c), sum);
        for (long lane = 0; lane < LANES; ++lane) s.delta[i] += sum[lane];
    }
    flip(p, s.upper, s.upper_flipped, queries, 1);
}

// s.scores ← the weights, s.slopes ← the gradient of the scaled scores, both (j, i).
void slopes(const Problem& p, Scratch& s, const Queries& queries, const Keys& keys, const Rows& rows) {
    scores(p, s, queries, keys, rows);
    rows_against_queries(p, queries, keys, rows.v, s.upper_flipped, s.slopes);
    for (long i = 0; i < queries.columns(); i += LANES) {
        const Vector lse = load(s.lse + i), delta = load(s.delta + i);
        for (long at = i; at < keys.count * TILE; at += TILE) {
            const Vector weight = power(load(s.scores + at) - lse);
            store(s.scores + at, weight);
            store(s.slopes + at, weight * (load(s.slopes + at) - delta));
        }
    }
}

// Add to gradients of keys and values, each row at its position.
void add_segments(const Problem& p, Scratch& s, const Queries& queries, const Keys& keys, float* grad_k,
                  float* grad_v) {
    long at = 0;
    for (long n = 0; n < keys.segments; ++n) {
        const Segment& part = keys.segment[n];
        const long row = part.start * line(p);
        add_to_keys(part.count, queries.count, line(p), s.scores + at, s.upper, grad_v + row);
        add_to_keys(part.count, queries.count, line(p), s.slopes + at, s.q, grad_k + row);
        at += part.count * TILE;
    }
}

// Gradient of the queries and, if grad_k is given, these queries' contributions to gradients of keys and values.
void backward_queries(Problem& p, Scratch& s, const Queries& queries, const Rows& rows, float* grad_k,
                      float* grad_v) {
    load_queries_backward(p, s, queries);
    std::fill_n(s.sum, queries.count * line(p), 0.0f);
    Walk walk(p, queries);
    for (Keys keys; walk.next(keys);) {
        slopes(p, s, queries, keys, rows);
        add_rows_to_queries(p, s, queries, keys, s.slopes, rows.k);
        if (grad_k) add_segments(p, s, queries, keys, grad_k, grad_v);
    }
    const float scale = static_cast<float>(p.scale);
    for (long i = 0; i < queries.count; ++i)
        put(p, s.sum + i * line(p), scale, p.grad_q, queries.batch, queries.head, queries.start + i);
}

// Gradients of a head's queries; those of its keys and values, (L, ·) each, go to `sums`.
void backward_head(Problem& p, Scratch& s, long batch, long head, const Rows& rows, float* sums) {
    std::fill_n(sums, 2 * plane_size(p), 0.0f);
    for (long block = 0; block < p.blocks; ++block)
        each_tile(p, batch, head, block, [&](const Queries& queries) {
            backward_queries(p, s, queries, rows, sums, sums + plane_size(p));
        });
}

// Gradients of a tile of keys in one block, over the query blocks that attend to it, in ascending order.
void backward_keys(Problem& p, Scratch& s, const Queries& tile, const std::vector<int32_t>& seers, const Rows& rows) {
    std::fill_n(s.grad_k, tile.count * line(p), 0.0f);
    std::fill_n(s.grad_v, tile.count * line(p), 0.0f);
    Keys keys;
    keys.count = tile.count, keys.segments = 1;
    for (const int32_t block : seers) {
        const bool listed = !p.full[block];
        keys.segment[0] = {tile.start, tile.count, listed && tile.block == 0, listed && tile.block == block};
        each_tile(p, tile.batch, tile.head, block, [&](const Queries& queries) {
            if (p.causal && block == tile.block && queries.start + queries.count <= tile.start) return;
            load_queries_backward(p, s, queries);
            slopes(p, s, queries, keys, rows);
            add_to_keys(tile.count, queries.count, line(p), s.scores, s.upper, s.grad_v);
            add_to_keys(tile.count, queries.count, line(p), s.slopes, s.q, s.grad_k);
        });
    }
    for (long j = 0; j < tile.count; ++j) {
        put(p, s.grad_k + j * line(p), 1, p.grad_k, tile.batch, tile.head, tile.start + j);
        put(p, s.grad_v + j * line(p), 1, p.grad_v, tile.batch, tile.head, tile.start + j);
    }
}

// ---- distribution of work -----------------------------------------------------------------------------------

// Call `work(worker, item)` for every item below `items`, in that order, on the problem's threads.
template <typename Work> class Crew {
  public:
    Crew(const Problem& p, long items, Work work) : items(items), work(work) {
        const long threads = std::clamp<long>(items, 1, p.threads);
        if (threads == 1) {
            run(this);
        } else if (p.launcher) {
            p.launcher(run, this, static_cast<unsigned>(threads), 0);
        } else {
            std::vector<std::thread> others;
            for (long n = 1; n < threads; ++n) others.emplace_back(run, this);
            run(this);
            for (std::thread& other : others) other.join();
        }
    }

  private:
    const long items;
    Work work;
    std::atomic<long> workers{0}, taken{0};

    static void run(void* self) {
        Crew& crew = *static_cast<Crew*>(self);
        const long worker = crew.workers++;
        for (long item; (item = crew.taken++) < crew.items;) crew.work(worker, item);
    }
};

// Number of heads per group: those of one sequence, more if they stay in the cache, fewer if they take too much memory;
// a multiple of the thread count if possible.
long group_planes(const Problem& p, const Layout& layout) {
    const long all = std::max<long>(p.batch * p.heads, 1);
    if (!layout.size(p)) return all;
    const long few = std::max<long>(CACHED_NUMBERS / layout.size(p), p.heads);
    const long each = std::clamp(PACKED_NUMBERS / layout.size(p), 1L, few);
    return std::min<long>(each * p.threads, all);
}

Layout forward_layout(const Problem& p) { return {is_packed(p) ? 0 : 2, 0}; }

// Call `visit(batch, head, token, plane)` for all heads of a group, on all threads, token by token: a token's heads
// are adjacent in memory.
template <typename Visit> void each_token(Problem& p, const Group& group, Visit visit) {
    const long chunks = (p.tokens + PACK_ROWS - 1) / PACK_ROWS;
    const long begin = group.first / p.heads, end = (group.first + group.planes - 1) / p.heads + 1;
    Crew(p, (end - begin) * chunks, [&](long, long item) {
        const long batch = begin + item / chunks, token = item % chunks * PACK_ROWS;
        const long first = std::max<long>(group.first, batch * p.heads);
        const long last = std::min<long>(group.first + group.planes, (batch + 1) * p.heads);
        for (long j = token; j < std::min<long>(token + PACK_ROWS, p.lengths[batch]); ++j)
            for (long plane = first; plane < last; ++plane) visit(batch, plane - batch * p.heads, j, plane);
    });
}

// Call `solve` for groups of heads after packing their keys and values.
template <typename Solve> void each_group(Problem& p, const Layout& layout, Solve solve) {
    const long all = p.batch * p.heads, step = group_planes(p, layout);
    for (long first = 0; first < all; first += step) {
        const Group group{first, std::min(step, all - first), p.scratch + p.threads * worker_scratch(p)};
        if (layout.packed)
            each_token(p, group, [&](long batch, long head, long token, long plane) {
                float* room = group.room + (plane - first) * layout.size(p) + token * line(p);
                take(p, p.k, batch, head, token, room);
                take(p, p.v, batch, head, token, room + plane_size(p));
            });
        solve(group);
    }
}

void forward_all(Problem& p) {
    std::vector<long> full, sparse;
    for (long block = 0; block < p.blocks; ++block) (p.full[block] ? full : sparse).push_back(block);
    const long tiles = (p.block_size + TILE - 1) / TILE, listed = static_cast<long>(sparse.size());
    const Layout layout = forward_layout(p);
    each_group(p, layout, [&](const Group& group) {
        const long first = group.first, planes = group.planes;
        // Full rows take longest and go first, one tile each; then runs of neighboring blocks, whose windows overlap.
        const long long_items = planes * static_cast<long>(full.size()) * tiles;
        const long run = std::clamp<long>(planes * listed / (8 * p.threads), 1L, LONGEST_RUN);
        const long runs = (listed + run - 1) / run;
        Crew(p, long_items + planes * runs, [&](long worker, long item) {
            Scratch s = scratch_of(p, worker);
            const bool is_long = item < long_items;
            const long plane = first + (is_long ? item / tiles % planes : (item - long_items) / runs);
            const Rows rows = rows_of(p, group, layout, plane);
            const auto compute = [&](const Queries& queries) { attend(p, s, queries, rows); };
            if (is_long) {
                const long block = full[item / tiles / planes], start = block * p.block_size + item % tiles * TILE;
                each_tile(p, plane / p.heads, plane % p.heads, block, [&](const Queries& queries) {
                    if (queries.start == start) compute(queries);
                });
                return;
            }
            const long begin = (item - long_items) % runs * run;
            for (long n = begin; n < std::min(begin + run, listed); ++n)
                each_tile(p, plane / p.heads, plane % p.heads, sparse[n], compute);
        });
    });
}

// Whether each worker takes whole heads. This needs 5 products per pair of tiles instead of 7, but some threads may be
// idle at the end.
bool by_head(const Problem& p) {
    const long planes = p.batch * p.heads, rounds = (planes + p.threads - 1) / p.threads;
    return 5 * rounds * p.threads <= 7 * planes;
}

Layout backward_layout(const Problem& p) { return {is_packed(p) ? 0 : 2, by_head(p) ? 2 : 0}; }

void backward_by_head(Problem& p) {
    const Layout layout = backward_layout(p);
    each_group(p, layout, [&](const Group& group) {
        Crew(p, group.planes, [&](long worker, long item) {
            Scratch s = scratch_of(p, worker);
            const long plane = group.first + item;
            const Rows rows = rows_of(p, group, layout, plane);
            backward_head(p, s, plane / p.heads, plane % p.heads, rows, sums_of(p, group, layout, plane));
        });
        each_token(p, group, [&](long batch, long head, long token, long plane) {
            const float* sums = sums_of(p, group, layout, plane) + token * line(p);
            put(p, sums, 1, p.grad_k, batch, head, token);
            put(p, sums + plane_size(p), 1, p.grad_v, batch, head, token);
        });
    });
}

// Query blocks that attend to a key block, (H, Q): all full ones and those that list it, in ascending order.
std::vector<std::vector<int32_t>> seers_of(const Problem& p) {
    std::vector<std::vector<int32_t>> seers(p.heads * p.blocks);
    for (long head = 0; head < p.heads; ++head)
        for (long block = 0; block < p.blocks; ++block) {
            std::vector<int32_t>* of_head = seers.data() + head * p.blocks;
            const int32_t* list = p.key_blocks + (head * p.blocks + block) * p.seen;
            if (p.full[block])
                for (long key = 0; key < p.blocks; ++key) of_head[key].push_back(static_cast<int32_t>(block));
            else
                for (long n = 0; n < p.seen && list[n] >= 0; ++n)
                    of_head[list[n]].push_back(static_cast<int32_t>(block));
        }
    return seers;
}

void backward_by_block(Problem& p) {
    const std::vector<std::vector<int32_t>> seers = seers_of(p);
    struct Item {
        long cost, head, start;
        bool keys;  // else queries
    };
    std::vector<Item> items;
    for (long head = 0; head < p.heads; ++head)
        for (long block = 0; block < p.blocks; ++block)
            for (long start = block * p.block_size; start < (block + 1) * p.block_size; start += TILE) {
                const long seen_by = static_cast<long>(seers[head * p.blocks + block].size());
                items.push_back({4 * seen_by, head, start, true});
                items.push_back({3 * (p.full[block] ? p.blocks : p.seen), head, start, false});
            }
    // Longest items first, so that all threads finish at about the same time.
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.cost > b.cost; });
    const Layout layout = backward_layout(p);
    each_group(p, layout, [&](const Group& group) {
        const long first = group.first, planes = group.planes;
        // A group may begin and end within a sequence, so every item checks whether it belongs to the group.
        const long begin = first / p.heads, sequences = (first + planes - 1) / p.heads + 1 - begin;
        Crew(p, sequences * static_cast<long>(items.size()), [&](long worker, long number) {
            const Item& item = items[number / sequences];
            const long batch = begin + number % sequences, plane = batch * p.heads + item.head;
            if (plane < first || plane >= first + planes) return;
            Scratch s = scratch_of(p, worker);
            const long block = item.start / p.block_size;
            const Rows rows = rows_of(p, group, layout, plane);
            each_tile(p, batch, item.head, block, [&](const Queries& tile) {
                if (tile.start != item.start) return;
                if (item.keys)
                    backward_keys(p, s, tile, seers[item.head * p.blocks + block], rows);
                else
                    backward_queries(p, s, tile, rows, nullptr, nullptr);
            });
        });
    });
}

// ---- element-wise functions ---------------------------------------------------------------------------------

// Call `visit(begin, end)` for runs of n elements, on all threads. All runs but the last are whole vectors.
template <typename Visit> void each_run(const Problem& p, long n, Visit visit) {
    constexpr long RUN = 1 << 14;
    Crew(p, (n + RUN - 1) / RUN, [&](long, long item) { visit(item * RUN, std::min(item * RUN + RUN, n)); });
}

inline Vector gelu_slope_value(Vector x) {
    constexpr float RATE = 2 * 0.7978845608028654f;
    const Vector gate = 1.0f / gelu_divisor(x), inner = fused(x * x, splat(3 * 0.044715f * RATE), splat(RATE));
    // For large |x|, `bend` is almost 0 and `steep` may be infinite.
    const Vector bend = gate * (1.0f - gate), steep = x * inner;
    return fused(bend, bend > 1e-30f ? steep : Vector{}, gate);
}

template <typename T> void gelu_of(const Problem& p, const T* x, T* out, long n) {
    each_run(p, n, [&](long at, long end) {
        for (; at + LANES <= end; at += LANES) narrow_to(out + at, gelu_value(widen(x + at)));
        for (; at < end; ++at) out[at] = narrow<T>(gelu_value(splat(static_cast<float>(x[at])))[0]);
    });
}

template <typename T> void gelu_slope_of(const Problem& p, const T* x, const T* upper, T* out, long n) {
    each_run(p, n, [&](long at, long end) {
        for (; at + LANES <= end; at += LANES)
            narrow_to(out + at, gelu_slope_value(widen(x + at)) * widen(upper + at));
        for (; at < end; ++at)
            out[at] = narrow<T>(gelu_slope_value(splat(static_cast<float>(x[at])))[0] * static_cast<float>(upper[at]));
    });
}

template <typename T, typename U>
void drop_of(const Problem& p, const T* x, const float* residual, U* out, const int16_t* lanes, int32_t least,
             float scale, long n) {
    typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
    each_run(p, n, [&](long at, long end) {
        for (; at + LANES <= end; at += LANES) {
            const Integers lane = __builtin_convertvector(*reinterpret_cast<const Shorts*>(lanes + at), Integers);
            const Vector kept = lane >= least ? widen(x + at) * scale : Vector{};
            narrow_to(out + at, residual ? kept + load(residual + at) : kept);
        }
        for (; at < end; ++at) {
            const float kept = lanes[at] >= least ? static_cast<float>(x[at]) * scale : 0.0f;
            out[at] = narrow<U>(residual ? kept + residual[at] : kept);
        }
    });
}

template <typename T, typename U>
void turn_all(const Problem& p, const T* from, U* to, const float* cos, const float* sin, long step, float sign) {
    const long half = p.width / 2, chunks = (p.tokens + PACK_ROWS - 1) / PACK_ROWS;
    const auto row = [&](const T* x, U* y, const float* c, const float* s) {
        long at = 0;
        for (; at + LANES <= half; at += LANES) {
            const Vector a = widen(x + at), b = widen(x + half + at);
            const Vector cosine = load(c + at), sine = load(s + at) * sign;
            narrow_to(y + at, fused(a, cosine, -(b * sine)));
            narrow_to(y + half + at, fused(b, cosine, a * sine));
        }
        for (; at < half; ++at) {
            const Vector a = splat(static_cast<float>(x[at])), b = splat(static_cast<float>(x[half + at]));
            const Vector cosine = splat(c[at]), sine = splat(s[at] * sign);
            y[at] = narrow<U>(fused(a, cosine, -(b * sine))[0]);
            y[half + at] = narrow<U>(fused(b, cosine, a * sine)[0]);
        }
    };
    const auto copy = [&](const T* x, U* y) {
        long at = 0;
        for (; at + LANES <= p.width; at += LANES) narrow_to(y + at, widen(x + at));
        for (; at < p.width; ++at) y[at] = narrow<U>(static_cast<float>(x[at]));
    };
    Crew(p, p.batch * chunks, [&](long, long item) {
        const long batch = item / chunks, begin = item % chunks * PACK_ROWS;
        for (long j = begin; j < std::min<long>(begin + PACK_ROWS, p.tokens); ++j)
            for (long head = 0; head < p.heads; ++head) {
                const T* x = from + batch * p.q.batch + head * p.q.head + j * p.q.token;
                U* y = to + batch * p.out.batch + head * p.out.head + j * p.out.token;
                const long at = batch * step + j * half;
                cos ? row(x, y, cos + at, sin + at) : copy(x, y);
            }
    });
}

// ---- whole layers -------------------------------------------------------------------------------------------

constexpr long PANEL = 2 * LANES;  // adjacent columns of weights

long in_panels(long columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// C ← A B, `stored`, B packed in panels of (inner, PANEL) that cover `columns`; rows of C have space for all panels.
template <typename Stored = Sums>
__attribute__((noinline)) void multiply(long rows, long inner, long columns, const float* a, long lda,
                                        const float* packed, float* c, long ldc, Stored stored = {}) {
    for (long x = 0; x < columns; x += PANEL)
        panel<2, false, false>(rows, inner, a, lda, Spaced{packed + x * inner, PANEL}, c + x, ldc, stored.from(x));
}

// x ← LayerNorm(x + (part + bias)) for `count` rows; `columns` is a multiple of LANES.
void add_and_normalize(float* x, const float* part, long line, const float* bias, const float* gain,
                       const float* shift, long count, long columns, double epsilon) {
    for (long i = 0; i < count; ++i, x += columns, part += line) {
        const auto mean = [&](Vector sum) {
            float total = 0;
            for (long lane = 0; lane < LANES; ++lane) total += sum[lane];
            return total / static_cast<float>(columns);
        };
        Vector sum{}, squares{};
        for (long c = 0; c < columns; c += LANES) {
            const Vector value = load(x + c) + (load(part + c) + load(bias + c));
            store(x + c, value);
            sum += value;
        }
        const Vector middle = splat(mean(sum));
        for (long c = 0; c < columns; c += LANES) {
            const Vector off = load(x + c) - middle;
            squares = fused(off, off, squares);
        }
        const Vector rate = splat(static_cast<float>(1 / std::sqrt(mean(squares) + epsilon)));
        for (long c = 0; c < columns; c += LANES)
            store(x + c, fused((load(x + c) - middle) * rate, load(gain + c), load(shift + c)));
    }
}

// Offsets of the parts of `room`.
struct Rooms {
    long joined, context, inner, size;
};

Rooms layer_rooms(const Problem& p, const Weights& w) {
    const long joined = p.tokens * in_panels(3 * w.hidden), context = p.tokens * w.hidden;
    return {0, joined, joined + context, joined + context + p.tokens * in_panels(w.inner)};
}

// `p` describes one sequence without padding; its tensors are set here. A sequence at a time stays in the cache.
void run_layer(Problem& p, const Weights& w, const float* cos, const float* sin, float* x, float* room) {
    const Rooms rooms = layer_rooms(p, w);
    float *joined = room + rooms.joined, *context = room + rooms.context, *inner = room + rooms.inner;
    const long tokens = p.tokens, hidden = w.hidden;
    const long joined_line = in_panels(3 * hidden), inner_line = in_panels(w.inner), line = in_panels(hidden);
    multiply(tokens, hidden, 3 * hidden, x, hidden, w.joined, joined, joined_line, Biased{w.joined_bias});
    const auto array = [&](float* data, long step) { return Array{data, 0, p.width, step}; };
    if (cos)
        for (float* part : {joined, joined + hidden}) {
            p.q = p.out = array(part, joined_line);
            turn_all(p, part, part, cos, sin, 0, 1.0f);
        }
    p.q = array(joined, joined_line), p.k = array(joined + hidden, joined_line);
    p.v = array(joined + 2 * hidden, joined_line), p.out = array(context, hidden);
    forward_all(p);
    multiply(tokens, hidden, hidden, context, hidden, w.output, joined, line);
    add_and_normalize(x, joined, line, w.output_bias, w.gain, w.shift, tokens, hidden, w.epsilon);
    multiply(tokens, hidden, w.inner, x, hidden, w.up, inner, inner_line, BiasedGelu{w.up_bias});
    multiply(tokens, w.inner, hidden, inner, inner_line, w.down, joined, line);
    add_and_normalize(x, joined, line, w.down_bias, w.last_gain, w.last_shift, tokens, hidden, w.epsilon);
}

}  // namespace

extern "C" {

// Number of elements of `scratch`.
int64_t scratch_size(const Problem* p, int backward) {
    const Layout layout = backward ? backward_layout(*p) : forward_layout(*p);
    return p->threads * worker_scratch(*p) + group_planes(*p, layout) * layout.size(*p);
}

// ---- element-wise functions: `type` is that of x and the following arrays, 0 float32 or 1 bfloat16 ----------

// x · sigmoid(2 √(2 / π) (x + 0.044715 x³)), the tanh form of GELU, for n elements; `out` may be `x`.
void gelu(const Problem* p, int64_t type, const void* x, void* out, int64_t n) {
    type == 1 ? gelu_of(*p, static_cast<const Brain*>(x), static_cast<Brain*>(out), n)
              : gelu_of(*p, static_cast<const float*>(x), static_cast<float*>(out), n);
}

// GELU's slope at x times `upper`; `out` may be `upper`.
void gelu_slope(const Problem* p, int64_t type, const void* x, const void* upper, void* out, int64_t n) {
    type == 1 ? gelu_slope_of(*p, static_cast<const Brain*>(x), static_cast<const Brain*>(upper),
                              static_cast<Brain*>(out), n)
              : gelu_slope_of(*p, static_cast<const float*>(x), static_cast<const float*>(upper),
                              static_cast<float*>(out), n);
}

// out ← x · scale where lane >= least, else 0; plus `residual` unless null. `out_type` is the type of `out`;
// `residual` is float32.
void drop(const Problem* p, int64_t type, int64_t out_type, const void* x, const float* residual, void* out,
          const int16_t* lanes, int64_t least, double scale, int64_t n) {
    const auto go = [&](const auto* from, auto* to) {
        drop_of(*p, from, residual, to, lanes, static_cast<int32_t>(least), static_cast<float>(scale), n);
    };
    const auto *wide = static_cast<const float*>(x);
    const auto *brain = static_cast<const Brain*>(x);
    if (type == 1)
        out_type == 1 ? go(brain, static_cast<Brain*>(out)) : go(brain, static_cast<float*>(out));
    else
        out_type == 1 ? go(wide, static_cast<Brain*>(out)) : go(wide, static_cast<float*>(out));
}

// p.out (B, H, L, K) ← p.q, each row rotated by its token's angles: rotary positions. `cos` and `sin` are (L, K / 2),
// `step` elements apart for each of the B sequences, 0 for common ones. Null `cos` copies, and `sign` -1 inverts the
// rotation. `out_type` is the type of p.out, which may be p.q.
void turn(Problem* p, int64_t out_type, const float* cos, const float* sin, int64_t step, double sign) {
    const auto go = [&](const auto* from, auto* to) {
        turn_all(*p, from, to, cos, sin, step, static_cast<float>(sign));
    };
    const auto *wide = static_cast<const float*>(p->q.data);
    const auto *brain = static_cast<const Brain*>(p->q.data);
    if (p->type == 1)
        out_type == 1 ? go(brain, static_cast<Brain*>(p->out.data)) : go(brain, static_cast<float*>(p->out.data));
    else
        out_type == 1 ? go(wide, static_cast<Brain*>(p->out.data)) : go(wide, static_cast<float*>(p->out.data));
}

// Columns per panel of packed weights.
int64_t panel_columns() { return PANEL; }

// Number of elements of `room` for `layer`.
int64_t layer_room(const Problem* p, const Weights* w) { return layer_rooms(*p, *w).size; }

// Run `count` sequences, each as described by `p`, through an encoder layer, in place; `cos`, `sin` and `step` as for
// `turn`.
void layer(Problem* p, const Weights* w, int64_t count, const float* cos, const float* sin, int64_t step, float* x,
           float* room) {
    for (int64_t n = 0; n < count; ++n, x += p->tokens * w->hidden)
        run_layer(*p, *w, cos ? cos + n * step : cos, sin ? sin + n * step : sin, x, room);
}

void forward(Problem* p) { forward_all(*p); }

void backward(Problem* p) { by_head(*p) ? backward_by_head(*p) : backward_by_block(*p); }

}
