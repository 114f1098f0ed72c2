#include "optim/transaction.h"

#include <gtest/gtest.h>

namespace farad::optim {
namespace {

Transaction prepared() {
  Transaction transaction;
  transaction.prepare();
  return transaction;
}

TEST(Transaction, EndsAsTheCoordinatorSays) {
  auto one = prepared(), other = prepared();
  one.commit();
  other.abort();
  EXPECT_EQ(one.standing(), Standing::Committed);
  EXPECT_EQ(other.standing(), Standing::Aborted);
}

TEST(Transaction, FirstEndStays) {
  auto transaction = prepared();
  transaction.commit();
  transaction.abort();
  transaction.freeze(1);
  transaction.learn(1, Standing::Aborted);
  EXPECT_EQ(transaction.standing(), Standing::Committed);
}

TEST(Transaction, WhoIsAskedBeforeItIsPreparedAborts) {
  Transaction transaction;
  transaction.freeze(0);
  transaction.prepare();
  transaction.commit();
  EXPECT_EQ(transaction.standing(), Standing::Aborted);
}

TEST(Transaction, WhoIsAskedHearsTheCoordinatorNoMore) {
  auto transaction = prepared();
  transaction.freeze(2);
  transaction.commit();
  EXPECT_EQ(transaction.standing(), Standing::Open);
  transaction.learn(2, Standing::Aborted);
  EXPECT_EQ(transaction.standing(), Standing::Aborted);
}

TEST(Transaction, WordOfALostLeaderComesTooLate) {
  auto transaction = prepared();
  transaction.freeze(1);
  transaction.freeze(3);  // It has seen that 1 is lost.
  transaction.learn(1, Standing::Committed);
  EXPECT_EQ(transaction.standing(), Standing::Open);
  transaction.learn(3, Standing::Aborted);
  EXPECT_EQ(transaction.standing(), Standing::Aborted);
}

}  // namespace
}  // namespace farad::optim
