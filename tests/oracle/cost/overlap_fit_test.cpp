// The overlap fit: planted constants come back, rows of one constant do not move another, faults are named.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "validate/fit/overlap.h"

namespace longhaul {
namespace {

const OverlapDevice kDevice = {100, BytesPerSecond{4e12}, BytesPerSecond{50e9}};

OverlapConstants planted() {
  OverlapConstants constants;
  constants.gemm = {1.23, 1};
  constants.attention = {1.1, 0.45};
  constants.compute_beside_host_copy = 1.12;
  constants.memory_kernel_beside_compute = 1.95;
  constants.memory_bytes_per_transferred_byte = 2.3;
  constants.transfer_beside_gemm = 1.3;
  constants.transfer_beside_attention = 1.05;
  constants.transfer_beside_memory_kernel = 1.6;
  return constants;
}

OverlapRow row(OverlapTerm term, OverlapClass kernel, const Beside& beside, bool of_transfer = false) {
  OverlapRow made{"", term, kernel, beside, 0, of_transfer, 1, true};
  OverlapConstants constants = planted();
  if (!of_transfer) constants.transfer_beside_memory_kernel = 1;  // rows hold what transfers moved while together
  made.factor = predict(constants, kDevice, made);
  return made;
}

// Every constant with three rows each, those of channels and bytes at three sizes.
std::vector<OverlapRow> rows() {
  std::vector<OverlapRow> made;
  for (const int size : {8, 16, 32}) {
    Beside memory, host, compute, channels, bytes;
    memory.memory_kernels = 1;
    host.host_copies = 1;
    compute.gemms = 1;
    channels.channels = size;
    bytes.transferred_bytes_per_second = size * 20e9;
    made.push_back(row(OverlapTerm::kGemmBesideMemoryKernel, OverlapClass::kGemm, memory));
    made.push_back(row(OverlapTerm::kAttentionBesideMemoryKernel, OverlapClass::kAttention, memory));
    made.push_back(row(OverlapTerm::kComputeBesideHostCopy, OverlapClass::kGemm, host));
    made.push_back(row(OverlapTerm::kMemoryKernelBesideCompute, OverlapClass::kMemory, compute));
    made.push_back(row(OverlapTerm::kGemmMultiprocessors, OverlapClass::kGemm, channels));
    made.push_back(row(OverlapTerm::kAttentionMultiprocessors, OverlapClass::kAttention, channels));
    made.push_back(row(OverlapTerm::kMemoryBytes, OverlapClass::kMemory, bytes));
    made.push_back(row(OverlapTerm::kTransferBesideGemm, OverlapClass::kGemm, {}, true));
    made.push_back(row(OverlapTerm::kTransferBesideAttention, OverlapClass::kAttention, {}, true));
    made.push_back(row(OverlapTerm::kTransferBesideMemoryKernel, OverlapClass::kMemory, {}, true));
  }
  return made;
}

TEST(OverlapFit, RecoversPlantedConstants) {
  const OverlapFit fit = fit_overlap(rows(), kDevice, {});
  const OverlapConstants expected = planted();
  EXPECT_NEAR(fit.constants.gemm.beside_memory_kernel, expected.gemm.beside_memory_kernel, 1e-7);
  EXPECT_NEAR(fit.constants.gemm.multiprocessors_per_channel, 1, 1e-7);
  EXPECT_NEAR(fit.constants.attention.beside_memory_kernel, 1.1, 1e-7);
  EXPECT_NEAR(fit.constants.attention.multiprocessors_per_channel, 0.45, 1e-7);
  EXPECT_NEAR(fit.constants.compute_beside_host_copy, 1.12, 1e-7);
  EXPECT_NEAR(fit.constants.memory_kernel_beside_compute, 1.95, 1e-7);
  EXPECT_NEAR(fit.constants.memory_bytes_per_transferred_byte, 2.3, 1e-6);
  EXPECT_NEAR(fit.constants.transfer_beside_gemm, 1.3, 1e-7);
  EXPECT_NEAR(fit.constants.transfer_beside_attention, 1.05, 1e-7);
  EXPECT_NEAR(fit.constants.transfer_beside_memory_kernel, 1.6, 1e-7);
  EXPECT_EQ(fit.constants.host_copy_beside_compute, 1) << "no rows: the prior";
  for (std::size_t i = 0; i < fit.rows.size(); ++i) {
    EXPECT_NEAR(fit.left_out[i], fit.rows[i].factor, 1e-5) << i;
    EXPECT_NEAR(fit.fitted[i], fit.rows[i].factor, 1e-5) << i;
  }
  EXPECT_EQ(fit.residuals.rows, 20);  // of kernels; 8 channels add 3.7 % to attention
  EXPECT_LT(fit.residuals.p90, 1e-4);
}

// A row that is 20 % off moves its own constant and no other; left out, it is predicted by the others.
TEST(OverlapFit, ARowMovesItsOwnConstantAlone) {
  std::vector<OverlapRow> off = rows();
  off[0].factor *= 1.2;
  const OverlapFit fit = fit_overlap(off, kDevice, {});
  EXPECT_GT(fit.constants.gemm.beside_memory_kernel, 1.25);
  EXPECT_NEAR(fit.constants.gemm.multiprocessors_per_channel, 1, 1e-7);
  EXPECT_NEAR(fit.left_out[0], 1.23, 1e-6);
  EXPECT_GT(fit.left_out[10], 1.25);
  EXPECT_NEAR(fit.residuals.high, (1.23 * 1.2 - 1) / 0.23 - 1, 1e-5);
}

TEST(OverlapFit, NothingIsSpedUp) {
  std::vector<OverlapRow> faster = rows();
  for (OverlapRow& one : faster) {
    if (one.term == OverlapTerm::kTransferBesideAttention || one.term == OverlapTerm::kAttentionMultiprocessors) {
      one.factor = 0.98;
    }
  }
  const OverlapFit fit = fit_overlap(faster, kDevice, {});
  EXPECT_EQ(fit.constants.transfer_beside_attention, 1);
  EXPECT_EQ(fit.constants.attention.multiprocessors_per_channel, 0);
}

TEST(OverlapFit, ConstantsWithoutRowsKeepThePrior) {
  OverlapConstants prior;
  prior.gemm.multiprocessors_per_channel = 1.5;
  std::vector<OverlapRow> few = {rows()[0], rows()[0]};
  const OverlapFit fit = fit_overlap(few, kDevice, prior);
  EXPECT_EQ(fit.constants.gemm.multiprocessors_per_channel, 1.5);
  EXPECT_NEAR(fit.constants.gemm.beside_memory_kernel, 1.23, 1e-7);
}

TEST(OverlapTable, EveryFaultIsNamed) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "longhaul-overlap-table";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "overlap.csv").string();
  const std::string head = "compute,beside,alone_ms,together_ms,copy_alone_ms_per_GiB,copy_together_ms_per_GiB\n";
  std::ofstream(file) << head << "gemm_1x1x1,h2dd,1,1,1,1\nsoftmax,h2d,1,1,1,1\n";
  const Expected<std::vector<OverlapRow>> faulty = read_overlap_rows(folder.string());
  ASSERT_FALSE(faulty);
  ASSERT_EQ(faulty.error().size(), 2U);
  EXPECT_EQ(
      faulty.error()[0].to_string(),
      file + ": row 1: beside is \"h2dd\"; expected d2d_copy, elementwise_add, h2d or d2h; did you mean \"h2d\"?");
  EXPECT_EQ(faulty.error()[1].to_string(), file + ": row 2: compute is \"softmax\"; expected gemm_... or attn_...");
  std::ofstream(file) << head << "attn_x,d2h,2,3,10,11\n";
  const Expected<std::vector<OverlapRow>> read = read_overlap_rows(folder.string());
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].term, OverlapTerm::kComputeBesideHostCopy);
  EXPECT_EQ((*read)[0].factor, 1.5);
  EXPECT_EQ((*read)[1].term, OverlapTerm::kHostCopyBesideCompute);
  EXPECT_NEAR((*read)[1].factor, 1.1, 1e-12);
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(read_overlap_rows(folder.string()));
}

const char* const kTransferHead =
    "compute,beside,bytes,ctas,gpus,alone_ms,together_ms,beside_alone_ms,beside_together_ms\n";

class TransferTables : public testing::Test {
 protected:
  TransferTables() { std::filesystem::create_directories(folder_); }
  ~TransferTables() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& rows) const {
    std::ofstream(folder_ / name) << kTransferHead << rows;
  }
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / "longhaul-transfer-tables";
};

TEST_F(TransferTables, RowsAndTheirReferences) {
  // A cast sees 4 ranks send and receive 2 x 3/4 of 8 GB in 2 s.
  write(
      "overlap_covered.csv",
      "gemm_4096x4096x64,all_gather,1000,default,2,10,13,5,6\ngemm_4096x4096x64,all_reduce,1000,16,2,10,12,5,6\n"
      "gemm_4096x4096x64,peer_copy,1000,default,2,10,9,5,5\ncast_y,all_gather,8000000000,default,4,10,11,1000,2000\n");
  write("overlap_attention_covered.csv",
        "attn_z,alltoall,1000,default,2,10,14,5,8\nattn_z,alltoall,1000,2,2,10,7,5,8\n");
  write("overlap.csv",
        "gemm_4096x4096x64,h2d_copy,1000,default,1,10,11,5,5\ngemm_4096x4096x64,d2d_copy,1000,default,1,10,11,5,5\n");
  const Expected<std::vector<OverlapRow>> read = read_transfer_rows(folder_.string());
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 10U);
  const OverlapRow& gemm = (*read)[0];
  EXPECT_EQ(gemm.term, OverlapTerm::kGemmMultiprocessors);
  EXPECT_EQ(gemm.beside.channels, 24);
  EXPECT_NEAR(gemm.factor, 1.3, 1e-12);
  EXPECT_EQ(gemm.tiles, 32 * 16);
  EXPECT_EQ((*read)[1].term, OverlapTerm::kTransferBesideGemm);
  EXPECT_NEAR((*read)[1].factor, 1.2, 1e-12);
  EXPECT_EQ((*read)[2].beside.channels, 16);  // not NCCL's own number: nothing is said of the transfer
  EXPECT_FALSE((*read)[2].as_simulated);
  const OverlapRow& cast = (*read)[3];
  EXPECT_EQ(cast.term, OverlapTerm::kMemoryBytes);
  EXPECT_NEAR(cast.beside.transferred_bytes_per_second, 6e9, 1);
  EXPECT_NEAR(cast.factor, 1.1, 1e-12);
  EXPECT_EQ((*read)[4].term, OverlapTerm::kTransferBesideMemoryKernel);
  const OverlapRow& attention = (*read)[5];
  EXPECT_EQ(attention.beside.channels, 32);
  EXPECT_NEAR(attention.factor, 1.4, 1e-12);
  EXPECT_EQ((*read)[7].beside.channels, 2);
  EXPECT_EQ((*read)[8].term, OverlapTerm::kComputeBesideHostCopy);
  EXPECT_EQ((*read)[9].term, OverlapTerm::kHostCopyBesideCompute);
}

TEST_F(TransferTables, EveryFaultIsNamed) {
  write("overlap_covered.csv", "softmax,all_gather,1,default,2,1,1,1,1\ngemm_1x1x1,all_gathr,1,default,2,1,1,1,1\n");
  const Expected<std::vector<OverlapRow>> faulty = read_transfer_rows(folder_.string());
  ASSERT_FALSE(faulty);
  ASSERT_EQ(faulty.error().size(), 4U);  // and two tables that cannot be read
  EXPECT_EQ(faulty.error()[0].to_string(),
            (folder_ / "overlap_covered.csv").string() +
                ": row 1: compute is \"softmax\"; expected gemm_..., attn_... or cast_...");
  EXPECT_EQ(faulty.error()[1].to_string(), (folder_ / "overlap_covered.csv").string() +
                                               ": row 2: beside is \"all_gathr\"; expected a collective or peer_copy; "
                                               "did you mean \"all_gather\"?");
  OverlapConstants constants;
  const Expected<void> holds = read_holds(folder_.string(), constants);
  ASSERT_FALSE(holds);
  EXPECT_EQ(holds.error().size(), 2U);
}

// Collectives of 1 beside kernels of 10: behind a GEMM they take its time, behind attention a tenth of it. One that is
// longer than a third of the kernel, or on other than NCCL's own channels, says nothing.
TEST_F(TransferTables, HoldsAreTheMedianOfShortCollectives) {
  write("overlap.csv",
        "gemm_4096x4096x64,all_gather,1,default,2,10,10,1,10\ngemm_4096x4096x64,all_reduce,1,default,2,10,10,1,9\n"
        "gemm_4096x4096x64,alltoall,1,default,2,10,10,1,1\ngemm_4096x4096x64,alltoall,1,16,2,10,10,1,1\n"
        "gemm_4096x4096x64,alltoall,1,default,2,10,10,4,4\n");
  write("overlap_attention.csv", "attn_x,all_gather,1,default,2,10,10,1,1\n");
  OverlapConstants constants;
  ASSERT_TRUE(read_holds(folder_.string(), constants));
  EXPECT_TRUE(constants.gemm.holds_transfers);
  EXPECT_FALSE(constants.attention.holds_transfers);
}

}  // namespace
}  // namespace longhaul
