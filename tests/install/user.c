/* Someone else's program: attention of one query and one key on the CPU, where the output is the value. */
#include <kiln/attention.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  kiln_attention_context* context;
  if (kiln_attention_create(KILN_CPU, &context) != KILN_OK)
    return fprintf(stderr, "%s\n", kiln_last_error()), 1;

  kiln_attention_problem problem = {0};
  problem.struct_size = sizeof problem;
  problem.dtype = KILN_FP32;
  problem.batch = problem.queries = problem.keys = problem.heads = problem.kv_heads = 1;
  problem.head_dim = 8;

  size_t forward = 0, backward = 0;
  if (kiln_attention_workspace(context, &problem, &forward, &backward) != KILN_OK)
    return fprintf(stderr, "%s\n", kiln_last_error()), 1;
  void* scratch = aligned_alloc(256, (forward + 255) / 256 * 256 + 256);

  _Alignas(64) float q[8] = {1}, k[8] = {1}, v[8], o[8], lse[1];
  for (int i = 0; i < 8; ++i) v[i] = (float)i;
  const kiln_attention_view views[] = {{q, 8, 8, 8}, {k, 8, 8, 8}, {v, 8, 8, 8}, {o, 8, 8, 8}};
  if (kiln_attention_forward(context, &problem, &views[0], &views[1], &views[2], &views[3], lse, scratch,
                             forward, NULL) != KILN_OK)
    return fprintf(stderr, "%s\n", kiln_last_error()), 1;
  for (int i = 0; i < 8; ++i)
    if (o[i] != v[i]) return fprintf(stderr, "o[%d] is %g, not %g\n", i, o[i], v[i]), 1;
  free(scratch);
  kiln_attention_destroy(context);
  return 0;
}
