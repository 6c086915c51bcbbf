// Double binary tree: two binary trees over the same ranks, each for half of the data. No rank has
// children in both. Data go up a tree in segments and are combined, then go down again.
//
//   rounds               about 2 lg p + 2 segments
//   bytes sent per rank  about 2 n
//   scratch              none with shared memory
//
// Nearly the ring's bandwidth with lg p latencies. In one tree half of the ranks are leaves and
// send half of what they could; in the other tree those ranks have children. Sanders, Speck
// and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <algorithm>
#include <array>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr Count segment_bytes = Count{64} << 10;

// One rank's neighbours in one tree; -1 for none.
struct Node {
  int parent = -1;
  std::array<int, 2> children = {-1, -1};
  bool is_leaf() const { return children[0] < 0 && children[1] < 0; }
};

// Ranks 1 .. p - 1 form a binary tree in order of rank, with odd ranks as leaves. Rank 0 is above
// its root. A rank's height is its lowest set bit; its children are half that bit to both sides.
Node in_order_tree(int rank, int p) {
  int bit = 1;
  while (bit < p && (rank & bit) == 0) bit *= 2;
  Node node;
  if (rank == 0) {
    node.children[1] = p > 1 ? bit / 2 : -1;
    return node;
  }
  const int above = (rank ^ bit) | (2 * bit);
  node.parent = above < p ? above : rank ^ bit;
  if (bit == 1) return node;
  node.children[0] = rank - bit / 2;
  // If the right child does not exist, the next lower rank that exists takes its place.
  int step = bit / 2;
  while (step > 0 && rank + step >= p) step /= 2;
  if (step > 0) node.children[1] = rank + step;
  return node;
}

// The second tree is the first with ranks counted backwards (p even) or shifted by one (p odd), so
// that odd ranks in one are even in the other.
int renamed(int rank, int p) { return p % 2 == 0 ? p - 1 - rank : (rank + p - 1) % p; }
int named_back(int place, int p) { return p % 2 == 0 ? p - 1 - place : (place + 1) % p; }

std::array<Node, 2> trees(int rank, int p) {
  const Node first = in_order_tree(rank, p);
  Node second = in_order_tree(renamed(rank, p), p);
  const auto back = [&](int& place) { place = place < 0 ? -1 : named_back(place, p); };
  back(second.parent);
  for (int& child : second.children) back(child);
  return {first, second};
}

int segments_of(Count half_bytes) {
  return static_cast<int>(std::max<Count>(1, (half_bytes + segment_bytes - 1) / segment_bytes));
}

void up(Communicator& comm, const Node& node, const Chunks& segment, int segments, ReduceOp op,
        std::vector<Request>& sent) {
  for (int i = 0; i < segments; ++i) {
    for (const int child : node.children)
      if (child >= 0) comm.recv_reduce(segment[i], child, op);
    if (node.parent >= 0)
      sent.push_back(comm.isend(segment[i], node.parent));
    else
      comm.complete(segment[i], op);
  }
}

void down(Communicator& comm, const Node& node, const Chunks& segment, int segments,
          std::vector<Request>& sent) {
  for (int i = 0; i < segments; ++i) {
    if (node.parent >= 0) comm.recv(segment[i], node.parent);
    for (const int child : node.children)
      if (child >= 0) sent.push_back(comm.isend(segment[i], child));
  }
}

void run(Communicator& comm, Slice data, ReduceOp op) {
  const Chunks half(data, 2);
  const auto tree = trees(comm.rank(), comm.size());
  const int segments = segments_of(half[0].bytes());
  const Chunks segment[] = {Chunks(half[0], segments), Chunks(half[1], segments)};
  // A leaf can send at once; in the other tree the rank must wait for its children.
  const int leaf = tree[0].is_leaf() ? 0 : 1;

  std::vector<Request> sent;
  sent.reserve(2 * static_cast<std::size_t>(segments));
  for (const int t : {leaf, 1 - leaf}) up(comm, tree[t], segment[t], segments, op, sent);
  // Data sent up must have left before data from above overwrite them.
  for (const Request& send : sent) send->wait();
  sent.clear();
  for (const int t : {1 - leaf, leaf}) down(comm, tree[t], segment[t], segments, sent);
  for (const Request& send : sent) send->wait();
}

Traffic traffic(const Problem& x, int rank) {
  const Parts half(x.count, 2);
  const int segments = segments_of(half[0] * x.element_bytes);
  const auto tree = trees(rank, x.ranks);
  Traffic total;
  for (int t = 0; t < 2; ++t) {
    Count neighbours = tree[t].parent >= 0;
    for (const int child : tree[t].children) neighbours += child >= 0;
    total +=
        {neighbours * segments, neighbours * half[t], neighbours * segments, neighbours * half[t]};
  }
  return total;
}

bool is_exact(const Problem& x) {
  const Count half = x.count / 2;
  return power_of_two(x) && x.ranks <= 8 && x.count % 2 == 0 &&
         half % segments_of(half * x.element_bytes) == 0;
}

// A hop up takes one latency and two segments, because both children's segments arrive one after
// the other; so does a hop down. The root has one child. Each further segment costs two up and two
// down. With long data, leaves send first: a rank that has children in the other tree begins to
// send their data up after S segments, its parent needs 2 S for both children, and down they need
// another 2 S.
double seconds(const Problem& x, const LinkModel& links) {
  if (x.ranks == 1) return 0;
  const Count half = Parts(x.count, 2).largest();
  const int levels = ceil_log2(x.ranks), segments = segments_of(half * x.element_bytes);
  const double alpha_s = links.between.alpha_s;
  const double segment_s = static_cast<double>(Parts(half, segments).largest() * x.element_bytes) *
                           links.between.beta_s_per_byte;
  if (x.ranks == 2) return 2 * (alpha_s + segments * segment_s);
  const double hops_s = 2 * levels * alpha_s + (4 * levels - 6 + 4 * segments) * segment_s;
  const double long_s = (2 * levels - 1) * alpha_s + (4 * levels - 8 + 5 * segments) * segment_s;
  const double exact_s = x.ranks == 4 ? hops_s : std::max(hops_s, long_s);
  if (is_exact(x)) return exact_s;
  // Both delays may occur; if p is not a power of two, a rank may have children in both trees.
  return exact_s + levels * (alpha_s + segment_s) + (power_of_two(x) ? 0 : segments * segment_s);
}

}  // namespace

AllReduceAlgorithm all_reduce_double_binary_tree() {
  return {
      .name = "double_binary_tree",
      .run = run,
      .traffic = traffic,
      .seconds = seconds,
      .formula = "max(2 lg p a + (4 lg p - 6 + 4 S) s b, (2 lg p - 1) a + (4 lg p - 8 + 5 S) s b)",
      .exact = is_exact};
}

}  // namespace lockstep
