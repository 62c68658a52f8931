// Tags of the messages of one communicator.
#pragma once

namespace kiln {

inline constexpr int kHeaderTag = 1, kAnswerTag = 2, kSenderTag = 3, kTakerTag = 4, kPieceTag = 5,
                     kSumTag = 6, kDataTag = 7;

}  // namespace kiln
