// What tells the messages of one communicator apart.
#pragma once

namespace kiln {

enum MpiTag : int { kHeaderTag = 1, kAnswerTag, kSenderTag, kTakerTag, kPieceTag, kSumTag, kDataTag };

}  // namespace kiln
