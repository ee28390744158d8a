#include "syrtos/engine/disagreement.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "syrtos/engine/rank_text.h"

namespace syrtos {
namespace {

// One thing that must be the same on all ranks.
struct Rule {
  std::function<bool(const RequestMeta&, const RequestMeta&)> same;
  std::function<std::string(const RequestMeta&)> show;  // completes "rank 2 ..."
  std::string remedy;
};

bool SameScale(double a, double b) { return a == b || (a != a && b != b); }

std::string ScaleText(double scale) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", scale);
  return text;
}

std::string DTypeText(const PartMeta& part) {
  std::string text = InfoOf(part.dtype).name;
  if (part.dtype == DType::kOpaque) text += " (" + std::to_string(part.item_bytes) + " bytes each)";
  return text;
}

bool SameButFirst(const Shape& a, const Shape& b) {
  return a.size() == b.size() && (a.empty() || std::equal(a.begin() + 1, a.end(), b.begin() + 1));
}

class Comparison {
 public:
  Comparison(const std::vector<Asked>& asked, const std::vector<std::string>& hosts)
      : asked_(asked), hosts_(hosts), first_(*asked.front().meta), info_(InfoOf(first_.kind)) {}

  Status Run() const {
    SYRTOS_RETURN_IF_ERROR(CompareKinds());
    SYRTOS_RETURN_IF_ERROR(ComparePartCounts());
    SYRTOS_RETURN_IF_ERROR(ForEachPart(&Comparison::ComparePartNames));
    SYRTOS_RETURN_IF_ERROR(ForEachPart(&Comparison::CompareDTypes));
    if (info_.reduces) SYRTOS_RETURN_IF_ERROR(CompareReduction());
    if (info_.has_root) SYRTOS_RETURN_IF_ERROR(CompareRoots());
    SYRTOS_RETURN_IF_ERROR(ForEachPart(&Comparison::CompareShapes));
    return CompareRanks();
  }

 private:
  Status Apply(const std::string& what, const Rule& rule) const {
    for (const Asked& one : asked_) {
      if (rule.same(*one.meta, first_)) continue;
      return Status::Mismatch(
          what + ": " + RankText(one.rank, hosts_) + " " + rule.show(*one.meta) + " but " +
          RankText(asked_.front().rank, hosts_) + " " + rule.show(first_) + ". " + rule.remedy);
    }
    return Status::Ok();
  }
  std::string What() const { return Describe(first_.kind, first_.key); }

  Status ForEachPart(Status (Comparison::*compare)(size_t) const) const {
    for (size_t part = 0; part < first_.parts.size(); ++part) {
      SYRTOS_RETURN_IF_ERROR((this->*compare)(part));
    }
    return Status::Ok();
  }

  Status CompareKinds() const {
    return Apply(What(), {[](auto& a, auto& b) { return a.kind == b.kind; },
                          [](auto& m) { return std::string("calls ") + InfoOf(m.kind).name; },
                          first_.key.name.empty()
                              ? "Make unnamed calls in the same order on every rank, or name them."
                              : "Make the same call under one name on every rank."});
  }

  Status ComparePartCounts() const {
    for (const Asked& one : asked_) {
      if (one.meta->parts.size() == first_.parts.size()) continue;
      return Status::Mismatch(
          What() + ": " + RankText(one.rank, hosts_) + " " + CountText(*one.meta) + " but " +
          RankText(asked_.front().rank, hosts_) + " " + CountText(first_) +
          MissingText(one, asked_.front()) + ". Pass the same list of tensors on every rank.");
    }
    return Status::Ok();
  }

  static std::string CountText(const RequestMeta& meta) {
    size_t count = meta.parts.size();
    return "has " + std::to_string(count) + (count == 1 ? " tensor" : " tensors");
  }

  // `; "bias" is missing on rank 1`, for the first of the longer list; nothing without names.
  std::string MissingText(const Asked& a, const Asked& b) const {
    bool a_is_shorter = a.meta->parts.size() < b.meta->parts.size();
    const Asked& shorter = a_is_shorter ? a : b;
    const std::vector<PartMeta>& some = shorter.meta->parts;
    const std::vector<PartMeta>& all = (a_is_shorter ? b : a).meta->parts;
    size_t place = 0;
    while (place < some.size() && some[place].name == all[place].name) ++place;
    if (all[place].name.empty()) return "";
    return "; \"" + all[place].name + "\" is missing on " + RankText(shorter.rank, hosts_);
  }

  Status ComparePartNames(size_t part) const {
    return Apply(DescribePart(first_, part),
                 {[part](auto& a, auto& b) {
                    const std::string &mine = a.parts[part].name, &theirs = b.parts[part].name;
                    return mine == theirs || mine.empty() || theirs.empty();
                  },
                  [part](auto& m) { return "has \"" + m.parts[part].name + "\" there"; },
                  "Pass the tensors in the same order on every rank."});
  }

  Status CompareDTypes(size_t part) const {
    return Apply(DescribePart(first_, part),
                 {[part](auto& a, auto& b) {
                    const PartMeta &mine = a.parts[part], &theirs = b.parts[part];
                    return mine.dtype == theirs.dtype && mine.item_bytes == theirs.item_bytes;
                  },
                  [part](auto& m) { return "has dtype " + DTypeText(m.parts[part]); },
                  "Convert to one dtype on every rank."});
  }

  Status CompareReduction() const {
    SYRTOS_RETURN_IF_ERROR(
        Apply(What(), {[](auto& a, auto& b) { return a.op == b.op; },
                       [](auto& m) { return std::string("asks for op=") + ReduceOpName(m.op); },
                       "Pass the same op on every rank."}));
    SYRTOS_RETURN_IF_ERROR(
        Apply(What(), {[](auto& a, auto& b) { return SameScale(a.prescale, b.prescale); },
                       [](auto& m) { return "asks for prescale_factor=" + ScaleText(m.prescale); },
                       "Pass the same prescale_factor on every rank."}));
    return Apply(What(),
                 {[](auto& a, auto& b) { return SameScale(a.postscale, b.postscale); },
                  [](auto& m) { return "asks for postscale_factor=" + ScaleText(m.postscale); },
                  "Pass the same postscale_factor on every rank."});
  }

  Status CompareRoots() const {
    return Apply(What(), {[](auto& a, auto& b) { return a.root == b.root; },
                          [](auto& m) { return "asks for root_rank " + std::to_string(m.root); },
                          "Pass the same root_rank on every rank."});
  }

  Status CompareShapes(size_t part) const {
    auto show = [part](auto& m) { return "has shape " + ShapeToString(m.parts[part].shape); };
    if (!info_.same_shape) {
      return Apply(DescribePart(first_, part),
                   {[part](auto& a, auto& b) {
                      return SameButFirst(a.parts[part].shape, b.parts[part].shape);
                    },
                    show,
                    std::string("Only the first dimension may differ in ") + info_.name +
                        "; make the others equal on every rank."});
    }
    return Apply(DescribePart(first_, part),
                 {[part](auto& a, auto& b) { return a.parts[part].shape == b.parts[part].shape; },
                  show, SameShapeRemedy()});
  }

  std::string SameShapeRemedy() const {
    if (info_.has_root) return "Give every rank a tensor of the root's shape.";
    return "Build the model identically on every rank, or use allgather if the first dimension may "
           "differ.";
  }

  Status CompareRanks() const {
    bool adds = first_.kind == CollectiveKind::kAddGroup;
    return Apply(What(), {[](auto& a, auto& b) { return a.ranks == b.ranks; },
                          [adds](auto& m) {
                            return (adds ? "lists the ranks " : "asks for id ") + ListText(m.ranks);
                          },
                          adds ? "Every rank must add the same process set, members or not."
                               : "Every rank must remove the same process set, members or not."});
  }

  const std::vector<Asked>& asked_;
  const std::vector<std::string>& hosts_;
  const RequestMeta& first_;
  const CollectiveInfo& info_;
};

}  // namespace

std::string DescribePart(const RequestMeta& meta, size_t part) {
  std::string text = Describe(meta.kind, meta.key);
  if (meta.parts.size() < 2) return text;
  text += ", part " + std::to_string(part + 1) + " of " + std::to_string(meta.parts.size());
  const std::string& name = meta.parts[part].name;
  return name.empty() ? text : text + " \"" + name + "\"";
}

Status FindDisagreement(const std::vector<Asked>& asked, const std::vector<std::string>& hosts) {
  const RequestMeta& first = *asked.front().meta;
  bool all_same = std::all_of(asked.begin() + 1, asked.end(), [&first](const Asked& one) {
    return one.meta == &first || one.meta->SameSignature(first);
  });
  return all_same ? Status::Ok() : Comparison(asked, hosts).Run();
}

}  // namespace syrtos
