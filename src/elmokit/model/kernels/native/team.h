// Threads that begin and end within a call, and the work that they share: phases of tasks, one after the other.
#pragma once
#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "headers.h"

namespace elmo {

class Phases {
 public:
  // Tasks 0 .. count - 1, each once, after all of the phases before; for so many threads at most.
  void add(int64_t count, std::function<void(int64_t)> task, int64_t most) {
    if (count > 0) all.emplace_back(count, std::move(task), std::min(count, most));
  }
  void add(int64_t count, std::function<void(int64_t)> task) { add(count, std::move(task), count); }

  // By so many threads; the caller is one of them. 0, or 1 where memory ran out.
  //
  // A phase has ended when its tasks are done, whoever did them: a thread that comes late, or that could not be
  // started, is not waited for.
  int run(int64_t threads) {
    int64_t useful = 1;
    for (const auto& phase : all) useful = std::max(useful, phase.most);
    std::vector<std::thread> others;
    try {
      for (int64_t i = 1; i < std::min(threads, useful); i++) others.emplace_back([this] { work(); });
    } catch (const std::exception&) {
      // Fewer threads, then.
    }
    work();
    for (auto& other : others) other.join();
    return failed;
  }

 private:
  struct Phase {
    Phase(int64_t count, std::function<void(int64_t)> task, int64_t most)
        : count(count), most(most), task(std::move(task)) {}
    const int64_t count, most;
    const std::function<void(int64_t)> task;
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int64_t> done{0};
  };

  void work() {
    for (auto& phase : all) {
      for (int64_t i; (i = phase.next.fetch_add(1, std::memory_order_relaxed)) < phase.count;) {
        try {
          phase.task(i);
        } catch (const std::exception&) {
          failed = 1;
        }
        phase.done.fetch_add(1, std::memory_order_acq_rel);
      }
      if (&phase != &all.back()) wait_for(phase);
    }
  }

  static void wait_for(const Phase& phase) {
    for (int turn = 0; phase.done.load(std::memory_order_acquire) < phase.count; turn++) {
      if (turn < TURNS)
        pause();
      else
        std::this_thread::yield();
    }
  }

  static void pause() {
#if defined(ELMO_X86)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr int TURNS = 2000;  // some tens of microseconds: most waits are shorter
  std::deque<Phase> all;
  std::atomic<int> failed{0};
};

// One phase.
template <class Task>
static int share_out(int64_t count, int64_t threads, Task task) try {
  Phases only;
  only.add(count, std::move(task));
  return only.run(threads);
} catch (const std::exception&) {
  return 1;
}

// Rows of a linear map in blocks x its panels in groups: each weight of a block is read once.
struct PanelTasks {
  PanelTasks(int64_t rows, int64_t outputs, int64_t threads)
      : rows(rows), panels(outputs / PANEL), blocks((rows + BLOCK - 1) / BLOCK) {
    groups = blocks ? std::max<int64_t>(1, std::min(panels, TASKS * threads / blocks)) : 1;
  }
  int64_t count() const { return blocks * groups; }
  template <class Run>
  void run(int64_t task, Run run) const {
    const int64_t block = task / groups, group = task % groups;
    run(block * BLOCK, std::min((block + 1) * BLOCK, rows), group * panels / groups, (group + 1) * panels / groups);
  }
  static constexpr int64_t TASKS = 16;  // for each thread, or fewer: at the end, none is long without work
  int64_t rows, panels, blocks, groups;
};

// Where to cut the rows, the longest first, for threads of so many directions: no part costs more than it must. A step
// reads all weights, however few its rows are: that costs about as much as STEP rows more (benchmarks/threads.py).
std::vector<int64_t> cuts(const int32_t* lengths, int64_t rows, int64_t directions, int64_t threads);

// The rows of each direction, in these parts.
struct RowTasks {
  RowTasks(const Pass& pass, int64_t directions, int64_t threads)
      : directions(directions), ends(cuts(pass.lengths, pass.rows, directions, threads)) {}
  int64_t count() const { return directions * groups(); }
  int64_t groups() const { return (int64_t)ends.size() - 1; }
  template <class Run>
  void run(int64_t task, int64_t layers, Run run) const {  // run(layer of all directions', first row, last)
    const int64_t direction = task / groups(), group = task % groups();
    for (int64_t i = direction * layers; i < (direction + 1) * layers; i++) run(i, ends[group], ends[group + 1]);
  }
  const int64_t directions;
  const std::vector<int64_t> ends;
};

// Memory to be hashed, in pieces of 256 kB that threads share.
class Pieces {
 public:
  Pieces(const Span* spans, int64_t count);
  int64_t size() const { return places.size(); }
  int64_t threads() const { return (size() + 127) / 128; }  // one hashes 32 MB while a sentence is read
  void hash(int64_t piece);
  void join(uint64_t* digests) const;  // one digest a span

 private:
  static constexpr int64_t PIECE = int64_t(1) << 18;
  const Span* spans;
  const int64_t count;
  std::vector<std::pair<int64_t, int64_t>> places;  // a span, and where in it
  std::vector<uint64_t> parts;
};

}  // namespace elmo
