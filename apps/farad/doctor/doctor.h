#pragma once

namespace farad::doctor {

struct DoctorOptions {
  bool json = false;
  bool variables = false;  ///< only the table of environment variables, as Markdown
};

/// `farad doctor`: looks at the machine, the build and the environment. Returns 1 if something is broken.
int doctor(const DoctorOptions& options);

}  // namespace farad::doctor
