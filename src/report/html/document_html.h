// A document as one HTML file: no script, no network, a content security policy that forbids both; light or
// dark as the reader's system is; printed without what only a screen needs.
#pragma once

#include <string>

#include "report/document/document.h"

namespace kiln {

std::string document_html(const Document& document);

// Of any bytes, as data URIs have them.
std::string base64(std::string_view bytes);

}  // namespace kiln
