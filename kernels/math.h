#pragma once

namespace headrace::kernels {

// Elementary functions in double that give the same bits on every machine and with every C library:
// only IEEE additions, multiplications, divisions and fused multiply-adds. Tables and references
// are made with them; kernels/cpu/vector_math.h holds the f32 ones of the hot paths.

// Relative error below 4e-16 where the result is normal; 0 below -745, infinite above 709.78.
double exp_exact(double x);
// Natural logarithm of a positive normal number; relative error below 1e-15 away from 1, absolute
// error below 2e-16 near it.
double log_exact(double x);
// base^exponent for base > 0; relative error below 1e-14 while the result is within 1e+-20.
double pow_exact(double base, double exponent);
// For |x| <= kAngleMax; absolute error below 3e-16.
constexpr double kAngleMax = 0x1p24;
double sin_exact(double x);
double cos_exact(double x);

}  // namespace headrace::kernels
