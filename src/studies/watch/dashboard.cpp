#include "studies/watch/dashboard.h"

#include <array>
#include <charconv>

#include "report/html/dashboard_page.h"
#include "studies/watch/run_summary.h"

namespace kiln {
namespace {

constexpr auto kFresh = std::chrono::milliseconds(500);  // many pages at once read the folder no more often
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Six digits are more than a picture shows, and a third of the bytes.
template <class Get>
void append_list(std::string& text, std::string_view name, const std::vector<CurveBin>& bins,
                 const Get& get) {
  text += '"';
  text += name;
  text += "\":[";
  for (std::size_t i = 0; i < bins.size(); ++i) {
    std::array<char, 40> number{};
    const auto end = std::to_chars(number.data(), number.data() + number.size(), get(bins[i]),
                                   std::chars_format::general, 9);
    if (i > 0) text += ',';
    text.append(number.data(), end.ptr);
  }
  text += ']';
}

void append_curve(std::string& text, std::string_view name, const ThinCurve& curve) {
  const std::vector<CurveBin>& bins = curve.bins();
  if (text.back() != '{') text += ',';
  text += '"';
  text += name;
  text += "\":{";
  append_list(text, "first", bins, [](const CurveBin& b) { return static_cast<double>(b.first); });
  text += ',';
  append_list(text, "last", bins, [](const CurveBin& b) { return static_cast<double>(b.last); });
  text += ',';
  append_list(text, "mean", bins, [](const CurveBin& b) { return b.mean(); });
  text += ',';
  append_list(text, "least", bins, [](const CurveBin& b) { return b.least; });
  text += ',';
  append_list(text, "most", bins, [](const CurveBin& b) { return b.most; });
  text += '}';
}

}  // namespace

std::string dashboard_data(const RunReader& reader) {
  const RunCurves& c = reader.curves();
  std::string text = "{\"summary\":" + summary_json(summarize_run(reader)).dump() + ",\"curves\":{";
  append_curve(text, "loss", c.loss);
  append_curve(text, "validation", c.validation);
  append_curve(text, "tokens_per_s", c.tokens_per_s);
  append_curve(text, "of_peak", c.of_peak);
  append_curve(text, "step_ms", c.step_ms);
  append_curve(text, "grad_norm", c.grad_norm);
  append_curve(text, "data_wait", c.data_wait);
  append_curve(text, "peak_bytes", c.peak_bytes);
  return text + "}}\n";
}

Dashboard::Dashboard(const std::string& run, const DashboardPlace& place)
    : reader_(run),
      server_(std::make_unique<HttpServer>(HttpServerOptions{.host = place.host,
                                                             .port = place.port,
                                                             .policy = std::string(kPolicy),
                                                             .background = place.background},
                                           [this](const HttpRequest& request) { return answer(request); })) {}

HttpResponse Dashboard::answer(const HttpRequest& request) {
  if (request.path == "/") return {200, "text/html; charset=utf-8", std::string(kDashboardHtml)};
  if (request.path == "/dashboard.css") return {200, "text/css; charset=utf-8", std::string(kDashboardCss)};
  if (request.path == "/dashboard.js")
    return {200, "text/javascript; charset=utf-8", std::string(kDashboardScript)};
  if (request.path != "/data.json") return {404, "text/plain; charset=utf-8", {}};
  const auto now = std::chrono::steady_clock::now();
  if (data_.empty() || now - read_at_ > kFresh) {
    (void)reader_.refresh();
    data_ = dashboard_data(reader_);
    read_at_ = now;
  }
  return {200, "application/json", data_};
}

}  // namespace kiln
