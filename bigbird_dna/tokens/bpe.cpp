// Byte-pair encoding of DNA: the same tokens as SentencePiece, without its queue of pairs.
//
// SentencePiece starts with letters. It repeatedly merges the two adjacent symbols whose joined text is the token
// that was learned first (the leftmost of equals), until no two adjacent symbols form a token. Let E(s) be the
// resulting encoding of a text s. Merges in one part of a text are independent of merges in another part, so:
//
// (1) If no merge crosses a boundary, each side is encoded as if it were separate: its merges are chosen among
//     its own pairs, in the same order. At a boundary between two tokens of E(s), both sides are as in E(s).
// (2) Therefore a token p is formed in only one way, independent of its context: by the last merge of E(p), of
//     the pair `halves`. Adjacent symbols with the same joined text but other halves never occur.
// (3) Tokens t1 … tn are E of their joined text if and only if E(ti ti+1) = ti, ti+1 for all neighbors. "Only
//     if" is (1). "If": suppose the first merge across a boundary joins x at the end of ti and y at the beginning
//     of ti+1. Before it, ti and ti+1 are merged as in E(ti ti+1), where the same pairs are available. So x and y
//     occur there too, are the best pair there too, and are merged, which contradicts E(ti ti+1) = ti, ti+1.
//
// Hence an encoding is found from left to right as a path through the text whose adjacent tokens all agree. By (3)
// at most one path reaches each position: the encoding of the text before it. A position without a continuation is
// not tried again. The work is linear in the length of the text.
//
// (4) Whether adjacent tokens a, b agree depends only on their edges if each token was learned after its halves,
//     which `open_pieces` checks: merges are then in the order of learning. Going back in time, the later of the
//     two tokens at the boundary is split into its halves. At no time may the two tokens at the boundary form a
//     token that would have been merged before one of them was merged into its successor.
//
// Tokens are numbered: 0 to 3 are the bases, the others follow in the order of learning.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace {

using Number = uint16_t;  // 16 bits halve the memory, so that all tables fit into the processor's caches

constexpr int kBases = 4;
constexpr Number kNone = UINT16_MAX;
constexpr int64_t kMost = UINT16_MAX;
constexpr uint8_t kN = 4, kOther = 5;
constexpr int64_t kLongest = 512;  // maximum letters of a token in SentencePiece
constexpr int kStart = 6;          // letters for direct lookup of a node in the tree

struct Codes {
  uint8_t of[256];
  constexpr Codes() : of() {
    for (int i = 0; i < 256; ++i) of[i] = kOther;
    of[int('A')] = 0, of[int('C')] = 1, of[int('G')] = 2, of[int('T')] = 3, of[int('N')] = kN;
  }
};
constexpr Codes kCodes;

struct Halves {
  Number left, right;
};

struct Text {
  Number shorter;   // the longest other token that is a prefix of it
  uint16_t length;  // letters
};

// The letters of all tokens as a tree with root node 0; children are contiguous, in the order of their letters.
class Tree {
 public:
  // Add a token; return false if its letters are already in the tree.
  bool add(Number piece, const std::vector<uint8_t>& codes) {
    uint32_t at = 0;
    for (const uint8_t code : codes) {
      if (!loose_[at].next[code]) {
        loose_[at].next[code] = uint32_t(loose_.size());
        loose_.emplace_back();
      }
      at = loose_[at].next[code];
    }
    if (loose_[at].piece != kNone) return false;
    loose_[at].piece = piece;
    return true;
  }

  // Store the tree level by level once all tokens are added, and set the `shorter` token of each.
  void close(std::vector<Text>* texts) {
    std::vector<uint32_t> order{0};
    std::vector<Number> above{kNone};
    for (size_t i = 0; i < order.size(); ++i) {
      const Loose node = loose_[order[i]];
      if (node.piece != kNone) {
        (*texts)[node.piece].shorter = above[i];
        above[i] = node.piece;
      }
      uint32_t below = uint32_t(order.size()) << kBases;
      for (int code = 0; code < kBases; ++code) {
        if (!node.next[code]) continue;
        below |= 1u << code;
        order.push_back(node.next[code]);
        above.push_back(above[i]);
      }
      below_.push_back(below);
      pieces_.push_back(node.piece);
    }
    std::vector<Loose>().swap(loose_);
    uint8_t codes[kStart];
    for (uint32_t text = 0; text < 1u << 2 * kStart; ++text) {
      for (int k = 0; k < kStart; ++k) codes[k] = text >> 2 * (kStart - 1 - k) & 3;
      starts_.push_back(walk({0, kNone, true}, codes, kStart));
    }
  }

  // Return the longest token that is a prefix of a text.
  Number longest(const uint8_t* codes, int64_t count) const {
    if (count < kStart) return walk({0, kNone, true}, codes, count).piece;
    uint32_t text = 0;
    for (int k = 0; k < kStart; ++k) text = text << 2 | codes[k];
    const Found found = starts_[text];
    return found.goes_on ? walk(found, codes + kStart, count - kStart).piece : found.piece;
  }

 private:
  struct Loose {
    uint32_t next[kBases] = {0, 0, 0, 0};
    Number piece = kNone;
  };

  struct Found {
    uint32_t at;   // a node
    Number piece;  // the last token on the path to the node
    bool goes_on;  // whether the text so far is in the tree
  };

  Found walk(Found found, const uint8_t* codes, int64_t count) const {
    for (int64_t k = 0; k < count; ++k) {
      const uint32_t below = below_[found.at], bit = 1u << codes[k];
      if (!(below & bit)) return {found.at, found.piece, false};
      found.at = (below >> kBases) + __builtin_popcount(below & (bit - 1));
      if (pieces_[found.at] != kNone) found.piece = pieces_[found.at];
    }
    return found;
  }

  std::vector<Loose> loose_ = std::vector<Loose>(1);
  std::vector<uint32_t> below_;  // per node: its first child, and in the lowest bits the letters of its children
  std::vector<Number> pieces_;   // token that ends at each node
  std::vector<Found> starts_;    // nodes by the first letters of a text
};

struct Scratch {
  std::vector<uint8_t> codes, dead;
};

class Pieces {
 public:
  // `text` contains the learned tokens, token i from starts[i] to starts[i + 1]; `ids` those of the bases, then
  // of these tokens. Runs of N are divided by `run_lengths`, which decrease to 1, the longest first. Return
  // false if a token was not learned after its halves, because (4) then does not hold.
  bool open(int64_t learnt, const uint8_t* text, const int64_t* starts, const int32_t* ids, int64_t runs,
            const int32_t* run_lengths, const int32_t* run_ids) {
    if (kBases + learnt > kMost) return false;
    ids_.assign(ids, ids + kBases + learnt);
    run_lengths_.assign(run_lengths, run_lengths + runs);
    run_ids_.assign(run_ids, run_ids + runs);
    size_t room = 512;
    while (room < 2 * size_t(learnt)) room *= 2;
    slots_.assign(room, kNone);
    slot_shift_ = 64 - __builtin_ctzll(room);
    filter_.assign(room / 16, 0);  // at most a quarter of its bits are set
    filter_shift_ = slot_shift_ - 2;
    halves_.assign(kBases, {kNone, kNone});
    texts_.assign(kBases, {kNone, 1});
    for (Number base = 0; base < kBases; ++base) tree_.add(base, {uint8_t(base)});
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < learnt; ++i) {
      const int64_t length = starts[i + 1] - starts[i];
      if (length < 2 || length > kLongest) return false;
      codes.resize(length);
      for (int64_t k = 0; k < length; ++k) {
        codes[k] = kCodes.of[text[starts[i] + k]];
        if (codes[k] >= kBases) return false;
      }
      Halves halves;
      if (!last_pair(codes, &halves) || !tree_.add(Number(halves_.size()), codes)) return false;
      note(Number(halves_.size()), halves);
      halves_.push_back(halves);
      texts_.push_back({kNone, uint16_t(length)});
    }
    tree_.close(&texts_);
    return true;
  }

  // Write the ids of a text; return their number, or -1 for a letter outside A C G T N.
  int64_t encode(const uint8_t* text, int64_t count, int32_t* ids, Scratch& scratch) const {
    scratch.codes.resize(count);
    uint8_t worst = 0;
    for (int64_t i = 0; i < count; ++i) {
      scratch.codes[i] = kCodes.of[text[i]];
      worst = std::max(worst, scratch.codes[i]);
    }
    if (worst == kOther) return -1;
    const uint8_t* codes = scratch.codes.data();
    int64_t made = 0;
    for (int64_t first = 0; first < count;) {
      const bool gap = codes[first] == kN;
      int64_t last = first;
      if (gap) {
        while (last < count && codes[last] == kN) ++last;
        made += encode_gap(last - first, ids + made);
      } else {
        const void* found = std::memchr(codes + first, kN, count - first);
        last = found ? static_cast<const uint8_t*>(found) - codes : count;
        made += encode_bases(codes + first, last - first, ids + made, scratch.dead);
      }
      first = last;
    }
    return made;
  }

 private:
  static uint64_t hash(Number left, Number right) {
    return (uint64_t(left) << 16 | right) * 0x9e3779b97f4a7c15ULL;
  }

  void note(Number piece, Halves halves) {
    const uint64_t key = hash(halves.left, halves.right), bit = key >> filter_shift_;
    filter_[bit / 64] |= uint64_t(1) << bit % 64;
    size_t slot = key >> slot_shift_;
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = piece;
  }

  // Return the token that two adjacent tokens form, or kNone, which is larger than all token numbers.
  Number joined(Number left, Number right) const {
    const uint64_t key = hash(left, right), bit = key >> filter_shift_;
    if (!(filter_[bit / 64] >> bit % 64 & 1)) return kNone;
    for (size_t slot = key >> slot_shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
      const Number piece = slots_[slot];
      if (piece == kNone || (halves_[piece].left == left && halves_[piece].right == right)) return piece;
    }
  }

  // Merge a token's letters with the tokens learned before it; return whether two tokens are left, as `halves`.
  bool last_pair(const std::vector<uint8_t>& codes, Halves* halves) const {
    std::vector<Number> symbols(codes.begin(), codes.end()), pairs;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs.push_back(joined(symbols[i], symbols[i + 1]));
    while (symbols.size() > 2) {
      const auto best = std::min_element(pairs.begin(), pairs.end());  // the first of equals
      if (*best == kNone) return false;
      const size_t at = best - pairs.begin();
      symbols[at] = *best;
      symbols.erase(symbols.begin() + at + 1);
      pairs.erase(best);
      if (at > 0) pairs[at - 1] = joined(symbols[at - 1], symbols[at]);
      if (at + 1 < symbols.size()) pairs[at] = joined(symbols[at], symbols[at + 1]);
    }
    *halves = {symbols[0], symbols[1]};
    return true;
  }

  // Return whether E(ab) = a, b; see (4).
  bool agree(Number a, Number b) const {
    Number x = a, y = b, end_x = kNone, end_y = kNone;  // the tokens into which x and y were merged
    for (;;) {
      const Number piece = joined(x, y);
      // The leftmost of equals is merged first: x was merged with its left neighbor, y with its right neighbor.
      if (piece < end_x && piece <= end_y) return false;
      if (x < kBases && y < kBases) return true;
      if (x > y) {
        end_x = x;
        x = halves_[x].right;
      } else {  // of equals, the left one was merged first
        end_y = y;
        y = halves_[y].left;
      }
    }
  }

  int64_t encode_bases(const uint8_t* codes, int64_t count, int32_t* ids, std::vector<uint8_t>& dead) const {
    dead.assign(count + 1, 0);
    int64_t made = 0, at = 0;
    Number last = kNone, next = tree_.longest(codes, count);
    while (at < count) {
      while (next != kNone && (dead[at + texts_[next].length] || (last != kNone && !agree(last, next)))) {
        next = texts_[next].shorter;
      }
      if (next != kNone) {
        ids[made++] = last = next;
        at += texts_[next].length;
        next = tree_.longest(codes + at, count - at);
      } else {  // not at the start of the text, because each text has an encoding
        dead[at] = 1;
        next = Number(ids[--made]);
        at -= texts_[next].length;
        last = made ? Number(ids[made - 1]) : kNone;
        next = texts_[next].shorter;
      }
    }
    for (int64_t i = 0; i < made; ++i) ids[i] = ids_[ids[i]];
    return made;
  }

  int64_t encode_gap(int64_t count, int32_t* ids) const {
    int64_t made = 0;
    for (size_t i = 0; i < run_lengths_.size(); ++i) {
      for (; count >= run_lengths_[i]; count -= run_lengths_[i]) ids[made++] = run_ids_[i];
    }
    return made;
  }

  std::vector<int32_t> ids_, run_lengths_, run_ids_;
  std::vector<Halves> halves_;    // per token; kNone for a base
  std::vector<Text> texts_;       // per token
  std::vector<Number> slots_;     // hash table of tokens by their halves
  std::vector<uint64_t> filter_;  // Bloom filter that excludes most pairs that form no token
  int slot_shift_ = 0, filter_shift_ = 0;
  Tree tree_;
};

}  // namespace

extern "C" {

// Return an object for `encode_pieces`, freed by `close_pieces`; null for unsuitable tokens or lack of memory.
void* open_pieces(int64_t learnt, const uint8_t* text, const int64_t* starts, const int32_t* ids, int64_t runs,
                  const int32_t* run_lengths, const int32_t* run_ids) {
  try {
    auto pieces = std::make_unique<Pieces>();
    return pieces->open(learnt, text, starts, ids, runs, run_lengths, run_ids) ? pieces.release() : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void close_pieces(void* pieces) { delete static_cast<Pieces*>(pieces); }

// Encode concatenated texts with `threads` threads: write the number of ids of each text to `counts`, and the
// concatenated ids to `ids`, which needs room for one id per letter. Return 0, or 1 for a letter outside A C G T N
// or lack of memory.
int64_t encode_pieces(const void* opened, const uint8_t* text, const int64_t* starts, int64_t rows,
                      int64_t threads, int32_t* ids, int64_t* counts) {
  const auto& pieces = *static_cast<const Pieces*>(opened);
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    try {
      Scratch scratch;
      for (int64_t row = next++; row < rows && !failed; row = next++) {
        const int64_t first = starts[row];
        counts[row] = pieces.encode(text + first, starts[row + 1] - first, ids + first, scratch);
        if (counts[row] < 0) failed = true;
      }
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < std::min(threads, rows); ++i) others.emplace_back(work);
  } catch (const std::exception&) {
    // Fewer threads do the same work.
  }
  work();
  for (auto& other : others) other.join();
  if (failed) return 1;
  int64_t made = 0;
  for (int64_t row = 0; row < rows; made += counts[row++]) {
    std::memmove(ids + made, ids + starts[row], counts[row] * sizeof(int32_t));
  }
  return 0;
}

}  // extern "C"
