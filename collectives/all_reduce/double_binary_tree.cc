// Double binary tree: two binary trees over the same ranks, each for half of the data. Leaves of one
// tree have children in the other. Data go up a tree in segments and are combined, then go down
// again.
//
//   rounds               about 2 lg p + 2 segments
//   bytes sent per rank  about 2 n
//   scratch              none with shared memory
//   in flight            at most 256 sends, whatever the size
//
// The ring's bandwidth with lg p latencies: a rank combines and forwards in one tree while it sends
// as a leaf of the other. Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", 2009.
#include <algorithm>
#include <array>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/sends_in_flight.h"

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

// As a leaf, a rank sends this many segments ahead of those that it combines in the other tree. On
// the way down it takes them this many later. So each segment needs only earlier ones of the other
// tree, and no two ranks wait for each other.
constexpr int lead = 64;
// A send finishes when the neighbour has received it. As a rank sends two to four segments in a
// step, one that waits for the oldest send is many steps ahead of that, and the neighbour needs
// only segments of earlier steps to receive it. Fewer than 2 * lead would end in a deadlock.
constexpr std::size_t most_sends = 4 * lead;

// A rank's part in one tree, segment by segment.
class TreePart {
 public:
  TreePart(Communicator& comm, const Node& node, Slice data, int segments, SendsInFlight& sends)
      : comm_(comm), node_(node), segment_(data, segments), sends_(sends) {}

  void up(int i, ReduceOp op) {
    for (const int child : node_.children)
      if (child >= 0) comm_.recv_reduce(segment_[i], child, op);
    if (node_.parent >= 0)
      sends_.send(segment_[i], node_.parent);
    else
      comm_.complete(segment_[i], op);
  }
  void down(int i) {
    if (node_.parent >= 0) comm_.recv(segment_[i], node_.parent);
    for (const int child : node_.children)
      if (child >= 0) sends_.send(segment_[i], child);
  }

 private:
  Communicator& comm_;
  Node node_;
  Chunks segment_;
  SendsInFlight& sends_;
};

void run(Communicator& comm, Slice data, ReduceOp op) {
  const Chunks half(data, 2);
  const auto tree = trees(comm.rank(), comm.size());
  const int segments = segments_of(half[0].bytes());
  // A leaf can send at once; in the other tree the rank must wait for its children. If p is odd, one
  // rank has children in both.
  const int leaf = tree[0].is_leaf() ? 0 : 1, other = 1 - leaf;
  SendsInFlight sends(comm, most_sends);
  TreePart as_leaf(comm, tree[leaf], half[leaf], segments, sends);
  TreePart as_parent(comm, tree[other], half[other], segments, sends);
  for (int i = 0; i < segments + lead; ++i) {
    if (i >= lead) as_parent.up(i - lead, op);
    if (i < segments) as_leaf.up(i, op);
  }
  // Data sent up must have left before data from above overwrite them.
  sends.finish_all();
  for (int i = 0; i < segments + lead; ++i) {
    if (i >= lead) as_leaf.down(i - lead);
    if (i < segments) as_parent.down(i);
  }
  sends.finish_all();
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
  const int segments = segments_of(half * x.element_bytes);
  // Of more ranks, segments of both trees meet at some rank, and one waits for a part of the other.
  const int exact_segments = x.ranks <= 2 ? segments : x.ranks == 4 ? lead : x.ranks == 8 ? 1 : 0;
  return power_of_two(x) && x.count % 2 == 0 && half % segments == 0 && segments <= exact_segments;
}

// A hop up takes one latency and two segments, because both children's segments arrive one after
// the other; so does a hop down. The root has one child. Each further segment costs two up and two
// down. A rank begins to send its children's data after L = min(S, lead) segments as a leaf, which
// delays the first ones. If these L segments do not cover the latencies from leaf to root, the next
// L arrive late.
double seconds(const Problem& x, const LinkModel& links) {
  if (x.ranks == 1) return 0;
  const Count half = Parts(x.count, 2).largest();
  const int levels = ceil_log2(x.ranks), segments = segments_of(half * x.element_bytes);
  const int ahead = std::min(segments, lead), rounds = (segments - 1) / lead;
  const double alpha_s = links.between.alpha_s;
  const double segment_s = static_cast<double>(Parts(half, segments).largest() * x.element_bytes) *
                           links.between.beta_s_per_byte;
  if (x.ranks == 2)
    return 2 *
           std::max(alpha_s + segments * segment_s, (rounds + 1) * (alpha_s + segment_s) +
                                                        (segments - 1 - rounds * lead) * segment_s);
  const double hops_s = 2 * levels * alpha_s + (4 * levels - 6 + 4 * segments) * segment_s;
  const double long_s =
      (2 * levels - 1) * alpha_s + (4 * levels - 8 + 4 * segments + ahead) * segment_s;
  const double late_s =
      2 * rounds * std::max(0.0, levels * (alpha_s + 2 * segment_s) - 2 * lead * segment_s);
  const double exact_s = (x.ranks == 4 ? hops_s : std::max(hops_s, long_s)) + late_s;
  if (is_exact(x)) return exact_s;
  // Both delays may occur; if p is not a power of two, a rank may have children in both trees. With
  // few segments the time is up to a third shorter.
  return exact_s + levels * (alpha_s + segment_s) + (power_of_two(x) ? 0 : segments * segment_s);
}

}  // namespace

// S segments of s bytes, L of them ahead, q = floor((S - 1) / L); for 8 ranks or more.
AllReduceAlgorithm all_reduce_double_binary_tree() {
  return {.name = "double_binary_tree",
          .run = run,
          .traffic = traffic,
          .seconds = seconds,
          .formula =
              "max(2 lg p a + (4 lg p - 6 + 4 S) s b, (2 lg p - 1) a + (4 lg p - 8 + 4 S + L) s b)"
              " + 2 q max(0, lg p (a + 2 s b) - 2 L s b)",
          .exact = is_exact};
}

}  // namespace lockstep
