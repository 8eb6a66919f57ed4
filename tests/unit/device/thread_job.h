// Processes of a job as threads of a test: messages through queues, an abort ends all.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "validate/device/process_job.h"

namespace longhaul {

// What ends a thread when its job was aborted.
struct JobAborted {};

class ThreadJobs {
 public:
  explicit ThreadJobs(int processes) : processes_(processes) {}

  // `body` in every process at once, to the end of all. Exceptions but JobAborted go to the caller.
  void run(const std::function<void(ProcessJob&)>& body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(processes_));
    for (int p = 0; p < processes_; ++p) {
      threads.emplace_back([&, p] {
        Job job(*this, p);
        try {
          body(job);
        } catch (const JobAborted&) {
        } catch (...) {
          thrown[static_cast<std::size_t>(p)] = std::current_exception();
          end(-1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : thrown) {
      if (error) std::rethrow_exception(error);
    }
  }

  // Of the first abort.
  std::optional<int> abort_code() const { return code_; }
  // Messages that nobody took.
  std::size_t left() const {
    std::size_t count = 0;
    for (const auto& [ends, queue] : queues_) count += queue.size();
    return count;
  }

 private:
  class Job : public ProcessJob {
   public:
    Job(ThreadJobs& all, int process) : all_(all), process_(process) {}
    int process() const override { return process_; }
    int processes() const override { return all_.processes_; }
    std::string host() const override { return "testhost"; }
    void send(int to, std::span<const std::byte> message) override {
      const std::lock_guard lock(all_.mutex_);
      all_.queues_[{process_, to}].emplace_back(message.begin(), message.end());
      all_.arrived_.notify_all();
    }
    std::vector<std::byte> receive(int from) override {
      std::unique_lock lock(all_.mutex_);
      auto& queue = all_.queues_[{from, process_}];
      all_.arrived_.wait(lock, [&] { return !queue.empty() || all_.code_; });
      if (queue.empty()) throw JobAborted{};
      std::vector<std::byte> message = std::move(queue.front());
      queue.pop_front();
      return message;
    }
    void finish() override {}
    [[noreturn]] void abort(int code) override {
      all_.end(code);
      throw JobAborted{};
    }

   private:
    ThreadJobs& all_;
    int process_;
  };

  void end(int code) {
    const std::lock_guard lock(mutex_);
    if (!code_) code_ = code;
    arrived_.notify_all();
  }

  int processes_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> queues_;  // by sender, receiver
  std::optional<int> code_;
};

}  // namespace longhaul
